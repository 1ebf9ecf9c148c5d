"""Channel filters against all channels of a small world."""

from __future__ import annotations

from itertools import product

import pytest

from accord.core.admission.filter_index.patterns import (
    Relation,
    intersects,
    kind_of,
    names_of,
    relate,
)
from accord.core.model.channels import filter_covers, filter_selects

LEVELS = ("a", "b", "$a")
CHANNELS = ["/".join(levels) for count in (1, 2, 3, 4) for levels in product(LEVELS, repeat=count)]
FILTERS = [
    "/".join((*levels, *end))
    for count in (0, 1, 2, 3)
    for levels in product(("a", "b", "+"), repeat=count)
    for end in ((), ("#",))
    if levels or end
] + ["$a", "$a/#", "$a/+", "$a/b", "+/$a"]


def related(relation: Relation, asking: str, other: str) -> bool:
    same = relate(relation, kind_of(asking), kind_of(other))
    if same is None:
        return False
    left, right = asking.split("/"), other.split("/")
    return all(left[level] == right[level] for level in same)


@pytest.mark.parametrize("one", FILTERS)
def test_relations_are_those_of_the_channels_they_select(one: str) -> None:
    mine = {channel for channel in CHANNELS if filter_selects(one, channel)}
    for other in FILTERS:
        theirs = {channel for channel in CHANNELS if filter_selects(other, channel)}
        assert related(Relation.INTERSECTING, one, other) == bool(mine & theirs), other
        assert related(Relation.COVERED, one, other) == filter_covers(one, other), other
        assert related(Relation.COVERING, one, other) == filter_covers(other, one), other
        assert intersects(one, other) == intersects(other, one) == bool(mine & theirs)


def test_kinds_and_names() -> None:
    assert kind_of("site/+/temp/#") == "n+n#"
    assert kind_of("$SYS/load") == "$n"
    assert names_of("site/+/temp/#") == ["site", "temp"]
