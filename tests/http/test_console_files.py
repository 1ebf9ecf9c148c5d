"""The console's files over real sockets: caching, variants, headers, and nothing else."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import argon2
import httpx
import pytest
from tests.fake_node import FakeNode

from accord.http.app import create_app
from accord.http.console_files import PAGES, ConsoleFiles
from accord.http.server import serve
from accord.operations.ports import NodePorts
from accord.runtime.addresses import SocketAddress
from accord.runtime.users import User, Users

INDEX = b"<!doctype html><title>the console</title>"
SCRIPT = b"console.log('hello')\n" * 100
QUICK = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    static = tmp_path / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_bytes(INDEX)
    (static / "favicon.svg").write_text("<svg/>")
    (static / "sources.sha256").write_text("x")
    (static / "assets" / "main-1a2b.js").write_bytes(SCRIPT)
    (static / "assets" / "main-1a2b.js.gz").write_bytes(gzip.compress(SCRIPT, mtime=0))
    (static / "assets" / "plain-3c.css").write_text("a { color: red }")
    (tmp_path / "secret.txt").write_text("secret")
    return static


def ask(directory: Path, *requests: tuple[str, str, dict[str, str]]) -> list[httpx.Response]:
    """Answers of a node with users, without a login."""

    async def main() -> list[httpx.Response]:
        users = Users([User("ann", QUICK.hash("x"))])
        app = create_app(NodePorts(view=FakeNode()), users=users, files=ConsoleFiles(directory))
        server = await serve(app, SocketAddress("127.0.0.1", 0))
        async with httpx.AsyncClient(base_url=f"http://{server.address}") as http:
            answers = []
            for method, path, headers in requests:
                headers.setdefault("Accept-Encoding", "identity")
                answers.append(await http.request(method, path, headers=headers))
        await server.stop()
        await users.close()
        return answers

    return asyncio.run(main())


def get(directory: Path, path: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(directory, ("GET", path, named))[0]


def test_all_views_have_the_page(directory: Path) -> None:
    paths = ["/", *(f"/{page}" for page in PAGES), "/channels/uav/imagery", "/clients/a.js%2Fb"]
    paths += ["/channels/%2e%2e/%2e%2e/secret.txt", "/?window=15min", "/why/1234"]
    for answer in ask(directory, *(("GET", path, {}) for path in paths)):
        assert answer.status_code == 200
        assert answer.content == INDEX
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        assert "etag" in answer.headers
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_assets_are_kept_for_good(directory: Path) -> None:
    answer = get(directory, "/assets/main-1a2b.js")
    assert answer.content == SCRIPT
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("gzip;q=0", False),
        ("br", False),
        ("", False),
    ],
)
def test_compressed_variants(directory: Path, accepted: str, is_compressed: bool) -> None:
    answer = get(directory, "/assets/main-1a2b.js", Accept_Encoding=accepted)
    assert answer.content == SCRIPT  # decoded
    assert answer.headers.get("content-encoding") == ("gzip" if is_compressed else None)
    assert (int(answer.headers["content-length"]) < len(SCRIPT)) == is_compressed


def test_what_has_not_changed_is_not_sent(directory: Path) -> None:
    plain = get(directory, "/assets/main-1a2b.js").headers["etag"]
    small = get(directory, "/assets/main-1a2b.js", Accept_Encoding="gzip").headers["etag"]
    assert plain != small
    for tag in (plain, f'"x", W/{plain}', "*"):
        answer = get(directory, "/assets/main-1a2b.js", If_None_Match=tag)
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == plain
    assert get(directory, "/assets/main-1a2b.js", If_None_Match=small).status_code == 200
    index = get(directory, "/").headers["etag"]
    assert get(directory, "/channels", If_None_Match=index).status_code == 304


def test_head(directory: Path) -> None:
    (answer,) = ask(directory, ("HEAD", "/assets/main-1a2b.js", {}))
    assert answer.status_code == 200
    assert answer.content == b""
    assert answer.headers["content-length"] == str(len(SCRIPT))


def test_other_files(directory: Path) -> None:
    answer = get(directory, "/favicon.svg")
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/",
        "/assets/none.js",
        "/assets/main-1a2b.js.gz",
        "/assets/../index.html/x",
        "/assets/..%2f..%2fsecret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "//etc/passwd",
        "/assets/%00",
        "/sources.sha256",
        "/index.html",
        "/channelsx",
    ],
)
def test_nothing_else_is_served(directory: Path, path: str) -> None:
    (answer,) = ask(directory, ("GET", path, {}))
    assert answer.status_code in (401, 404)
    assert b"secret" not in answer.content
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "line",
    [
        b"GET /assets/../../secret.txt HTTP/1.1",
        b"GET /../secret.txt HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"GET http://localhost/../secret.txt HTTP/1.1",
    ],
)
def test_paths_that_no_client_library_would_send(directory: Path, line: bytes) -> None:
    async def main() -> bytes:
        app = create_app(NodePorts(view=FakeNode()), files=ConsoleFiles(directory))
        server = await serve(app, SocketAddress("127.0.0.1", 0))
        reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
        writer.write(line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await server.stop()
        return answer

    answer = asyncio.run(main())
    assert answer.startswith(b"HTTP/1.1 4")
    assert b"secret\n" not in answer
    assert not answer.endswith(b"secret")


def test_nothing_is_changed_there(directory: Path) -> None:
    for answer in ask(directory, ("POST", "/", {}), ("DELETE", "/assets/main-1a2b.js", {})):
        assert answer.status_code == 405


def test_all_answers_have_the_headers(directory: Path) -> None:
    paths = ["/health", "/api/v1/status", "/api/v1/none", "/docs", "/api/v1/session"]
    for answer in ask(directory, *(("GET", path, {}) for path in paths)):
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_without_the_console_there_is_a_page_that_says_what_this_is(tmp_path: Path) -> None:
    files = ConsoleFiles(tmp_path / "none")
    assert not files.is_built
    assert not files.has("/")
    (answer,) = ask(tmp_path / "none", ("GET", "/", {}))
    assert answer.status_code == 401  # it names the node
