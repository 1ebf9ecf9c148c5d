"""Files of the console: its page at the addresses of all its views, and what the page loads.

They hold no data of the node and are served without a login. Only files that exist when the node
starts are served, so that no path leads elsewhere. Files under `assets/` are named by their
content: browsers keep them for good. Everything else is revalidated by its entity tag. `X.gz`
beside `X` is its compressed variant.
"""

from __future__ import annotations

import mimetypes
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

STATIC: Final = Path(__file__).parent.parent / "console" / "static"
PAGES: Final = (
    "channels", "clients", "policies", "network", "quality", "admission", "history", "why",
    "internals", "login",
)  # fmt: skip
_PAGE: Final = "index.html"
_NOT_SERVED: Final = ("sources.sha256",)
_IMMUTABLE: Final = "public, max-age=31536000, immutable"
# The system's table of types may lack them, or have others.
_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


class ConsoleFiles:
    """The built console in a directory; there may be none."""

    def __init__(self, directory: Path = STATIC) -> None:
        paths = sorted(path for path in directory.rglob("*") if path.is_file())
        names = {path.relative_to(directory).as_posix(): path for path in paths}
        self._files = {
            f"/{name}": _StaticFile(name, path, names.get(f"{name}.gz"))
            for name, path in names.items()
            if name not in _NOT_SERVED and not name.endswith(".gz")
        }
        self._page = self._files.pop(f"/{_PAGE}", None)

    @property
    def is_built(self) -> bool:
        return self._page is not None

    def has(self, path: str) -> bool:
        """Whether a path is answered with a file."""
        return self.is_built and (path in self._files or _is_page(path))

    def routes(self) -> list[Route]:
        """Routes of the page and the files; none if the console is not built."""
        if not self.is_built:
            return []
        views = [f"/{name}{rest}" for name in PAGES for rest in ("", "/{rest:path}")]
        return [Route(path, self._answer) for path in ("/", *views, *self._files)]

    async def _answer(self, request: Request) -> Response:
        found = self._files.get(request.scope["path"], self._page)
        assert found is not None
        return found.answer(request)


class _StaticFile:
    """One file, read when it is first asked for."""

    def __init__(self, name: str, path: Path, compressed: Path | None) -> None:
        suffix = path.suffix.lower()
        kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        is_text = kind.startswith("text/")
        self._media_type = f"{kind}; charset=utf-8" if is_text else kind
        self._cache = _IMMUTABLE if name.startswith("assets/") else "no-cache"
        self._path = path
        self._compressed = compressed

    @cached_property
    def _plain_body(self) -> tuple[bytes, str]:
        return _read(self._path)

    @cached_property
    def _compressed_body(self) -> tuple[bytes, str] | None:
        return None if self._compressed is None else _read(self._compressed)

    def answer(self, request: Request) -> Response:
        headers = {"Cache-Control": self._cache}
        body, tag = self._plain_body
        if self._compressed_body is not None:
            headers["Vary"] = "Accept-Encoding"
            if _takes_gzip(request.headers.get("accept-encoding", "")):
                body, tag = self._compressed_body
                headers["Content-Encoding"] = "gzip"
        headers["ETag"] = tag
        if _has_tag(request.headers.get("if-none-match", ""), tag):
            headers.pop("Content-Encoding", None)
            return Response(status_code=304, headers=headers)
        headers["Content-Type"] = self._media_type
        return Response(body, headers=headers)


def _is_page(path: str) -> bool:
    return path == "/" or (path[:1] == "/" and path[1:].partition("/")[0] in PAGES)


def _read(path: Path) -> tuple[bytes, str]:
    """The content and its entity tag."""
    body = path.read_bytes()
    return body, f'"{sha256(body).hexdigest()[:32]}"'


def _takes_gzip(accepted: str) -> bool:
    """Whether an `Accept-Encoding` names gzip, with a weight above 0."""
    for each in accepted.lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _has_tag(wanted: str, tag: str) -> bool:
    tags = [each.strip().removeprefix("W/") for each in wanted.split(",")]
    return "*" in tags or tag in tags
