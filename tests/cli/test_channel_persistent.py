"""`accord channel create --persistent`, against the API over a fake overlay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.test_channel import Site
from tests.cli.test_channel import site as site_of_channels

site: Iterator[Site] = site_of_channels  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("--persistent",), "true"),
        (("--option", "persistent=7d"), "7d"),
        (("--persistent", "--option", "persistent=12h"), "12h"),
    ],
)
def test_all_is_kept_or_so_far_back(site: Site, arguments: tuple[str, ...], option: str) -> None:
    heard = site.heard("create", "chat/#", *arguments)
    assert heard[-1] == f"options persistent={option}"
    found = site.net.registry.get("chat/#")
    assert found is not None
    assert found.options == {"persistent": option}


def test_it_is_kept_or_not(site: Site) -> None:
    failed = site.failure("create", "chat/#", "--persistent", "--option", "persistent=false")
    assert "--persistent contradicts --option persistent=false" in failed
    assert site.net.registry.all() == []


def test_a_span_that_is_none(site: Site) -> None:
    failed = site.failure("create", "chat/#", "--option", "persistent=often")
    assert "--option: persistent: expected true, or how far" in failed
    assert site.net.registry.all() == []
