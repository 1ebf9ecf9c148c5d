from __future__ import annotations

import pytest

from accord.core.model.errors import PolicyError
from accord.core.policy.policy_set import parse_policy_set
from accord.shaping.shaper_checks import check_shapers


@pytest.mark.parametrize(
    "preferences", ['"GeneralSurv"', '"Default"', '{ shaping = "trimming: id, platform" }']
)
def test_there_are_such_shapers(preferences: str) -> None:
    check_shapers(parse_policy_set(f'[[policies]]\nname = "a"\npreferences = {preferences}\n'))


def test_a_slip_is_told() -> None:
    book = parse_policy_set('[[policies]]\nname = "a"\npreferences = { shaping = "scalling" }\n')
    with pytest.raises(PolicyError, match=r'policy "a".*expected one of none, .*scaling.*scalling'):
        check_shapers(book)
