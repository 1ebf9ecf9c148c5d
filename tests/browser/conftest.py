"""The browser of these tests, a visitor of a node's console, and the node itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.traffic import Site, start_site

if TYPE_CHECKING:
    from tests.browser.browsing import Browser, Visitor


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    # Imported late: it skips where there is no browser.
    from tests.browser.browsing import open_browser  # noqa: PLC0415

    with open_browser() as running:
        yield running


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A node without users."""
    with start_site() as running:
        yield running


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """Makes visitors of an address. Afterwards, nothing bad may have happened to any of them."""
    from tests.browser.browsing import Visitor  # noqa: PLC0415

    visitors: list[Visitor] = []

    def enter(url: str, **options: Any) -> Visitor:
        visitors.append(Visitor(browser, url, **options))
        return visitors[-1]

    yield enter
    for visitor in visitors:
        visitor.close()
    assert [each for visitor in visitors for each in visitor.found] == []


@pytest.fixture
def visitor(site: Site, visit: Callable[..., Visitor]) -> Visitor:
    return visit(site.url)
