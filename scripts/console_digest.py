"""The digest of what the console is built from, kept beside the built files.

`make console` writes it; `make check` and a test compare it, so that the built files are those of
the sources.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
SOURCES: Final = ROOT / "console"
BUILT: Final = ROOT / "src" / "accord" / "console" / "static" / "sources.sha256"
_PARTS: Final = (
    "src", "public", "index.html", "package.json", "package-lock.json", "svelte.config.js",
    "tsconfig.json", "vite.config.ts", "dev/licences.ts", "dev/precompress.ts",
)  # fmt: skip
_NOT_BUILT: Final = (".test.ts", "openapi.json")


def _files() -> Iterator[Path]:
    for part in _PARTS:
        path = SOURCES / part
        yield from (each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def digest() -> str:
    """One digest over the names and contents of all sources."""
    found = sha256()
    names = {path.relative_to(SOURCES).as_posix(): path for path in _files()}
    for name in sorted(names):
        if not name.endswith(_NOT_BUILT):
            found.update(f"{name}\0{sha256(names[name].read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest() + "\n"


def main() -> int:
    if "--write" in sys.argv:
        BUILT.write_text(digest())
    elif not BUILT.exists() or BUILT.read_text() != digest():
        print("the built console is not that of console/: run `make console`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
