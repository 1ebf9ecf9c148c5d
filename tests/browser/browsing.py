"""A real browser that visits a node's console, and what it finds wrong there.

Importing this module skips the tests of a module that does so where there is no browser.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

pytest.importorskip("playwright.sync_api", reason="needs the Python package playwright")

from playwright.sync_api import (  # as long as it may be missing
    Browser,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

__all__ = ["Browser", "Locator", "Page", "Visitor", "eventually", "expect", "open_browser"]

CHROMIUM: Final = shutil.which("chromium")
# The last five: without them, Chromium asks for hosts of its maker.
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# How long a page is waited for: a busy machine is slow, and nothing is asserted on time.
WAIT_MS: Final = 12_000
DESK: Final = (1440, 900)
PHONE: Final = (390, 844)
_OWN_SCHEMES: Final = ("blob", "data")

if CHROMIUM is None:
    pytest.skip("needs Chromium (scripts/peers installs it)", allow_module_level=True)


@contextmanager
def open_browser(flags: Sequence[str] = ()) -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*FLAGS, *flags], chromium_sandbox=False
        )
        yield browser
        browser.close()


class Visitor:
    """One viewer: a fresh profile with one page, which writes down what should not happen."""

    def __init__(
        self, browser: Browser, url: str, *, is_dark: bool = False, size: tuple[int, int] = DESK
    ) -> None:
        self.url = url
        self.context = browser.new_context(
            base_url=url,
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if is_dark else "light",
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
        )
        self.context.set_default_timeout(WAIT_MS)
        self.page = self.context.new_page()
        self.found: list[str] = []
        """What the console said, scripts that failed, dialogs, requests to others."""
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.found.append(f"script: {error}"))
        self.page.on("dialog", self._on_dialog)
        self.page.on("request", self._on_request)
        self.page.on("websocket", lambda socket: self._look_at(socket.url))

    def open(self, path: str) -> Page:
        self.page.goto(path, wait_until="load")
        expect(self.page.locator("h1").first).to_be_visible()
        return self.page

    def resize(self, size: tuple[int, int]) -> None:
        self.page.set_viewport_size({"width": size[0], "height": size[1]})

    def forgive(self, *texts: str) -> None:
        """Drop findings with one of these texts: they belong to what the test did."""
        self.found = [each for each in self.found if not any(text in each for text in texts)]

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        width: int = self.page.evaluate(
            "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - innerWidth"
        )
        return width

    def close(self) -> None:
        self.context.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.found.append(f"{message.type}: {message.text} {message.location.get('url')}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.found.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        self._look_at(request.url)

    def _look_at(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _OWN_SCHEMES and parts.netloc != urlsplit(self.url).netloc:
            self.found.append(f"request to another site: {url}")


def eventually(look: Callable[[], Any], *, what: str, page: Page | None = None) -> Any:
    """The first true result of `look`; fails when none came for long."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"never came: {what}")
        # The page's events only come in while Playwright is asked.
        page.wait_for_timeout(100) if page else time.sleep(0.1)
