"""Take the documentation's pictures of the console while `accord demo targeting` runs."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import sync_playwright

FOLDER: Final = Path(__file__).parents[1] / "docs" / "pictures"
PHASE_S: Final = 60
# In phase 3a the link has been too small for long.
AT_S: Final = 2.4 * PHASE_S
PICTURES: Final = {
    "overview": ("/", "dark"),
    "channel": ("/channels/uav%2Fimagery", "dark"),
    "client": ("/clients/DISPLAY", "light"),
    "policies": ("/policies", "light"),
    "internals": ("/internals?series=sent_hz", "dark"),
}

# Left by tests/browser, which make what there is to see.
SCREENSHOTS: Final = Path(__file__).parents[1] / "build" / "console-screenshots"
BY_TESTS: Final = {
    "network": "network-cities-1440-light.png",
    "quality": "quality-match-1440-light.png",
    "admission": "admission-1440-light.png",
    "history": "history-timeline-1440-light.png",
    "why": "why-event-1440-light.png",
}
MAX_HEIGHT: Final = 1_000


@contextmanager
def demonstration() -> Iterator[str]:
    """Run it; the console's address."""
    accord = str(Path(sys.executable).with_name("accord"))
    command = [accord, "demo", "targeting", "--plain", "--seconds-per-phase", str(PHASE_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:  # noqa: S603
        try:
            for line in demo.stdout or ():
                if found := re.search(r"http://[\w.:]+\d", line):
                    yield found[0]
                    return
            raise SystemExit("the demonstration names no address")
        finally:
            demo.terminate()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with demonstration() as url, sync_playwright() as playwright:
        time.sleep(AT_S)
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"], chromium_sandbox=False
        )
        for name, (path, theme) in PICTURES.items():
            page = browser.new_page(
                base_url=url,
                viewport={"width": 1280, "height": 800},
                color_scheme="dark" if theme == "dark" else "light",
            )
            page.goto(path)
            page.wait_for_timeout(6_000)
            save(name, page.screenshot())
            page.close()
        browser.close()
    for name, taken in BY_TESTS.items():
        save(name, (SCREENSHOTS / taken).read_bytes())


def save(name: str, picture: bytes) -> None:
    """Keep it in 255 colours, at most as wide as a page of documentation shows it."""
    taken = Image.open(io.BytesIO(picture)).convert("RGB")
    taken = taken.crop((0, 0, taken.width, min(taken.height, MAX_HEIGHT)))
    taken.quantize(255).save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
