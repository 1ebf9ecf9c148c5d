"""What a running node answers is as its OpenAPI document says, for generated requests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import argon2
import pytest

import accord
from tests.brokers import accord_only, start_with_http

CONFIG: Final = Path(__file__).with_name("schemathesis.toml")
PASSWORD: Final = "secret"  # noqa: S105
HASH: Final = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
USERS: Final = f"""
[users.root]
password = "{HASH}"

[users.reader]
password = "{HASH}"
may = {{ publish = ["demo/#"], subscribe = ["demo/#"] }}
"""
CLIENTS: Final = ("patrol-1", "patrol-2")  # of the examples in the document

pytestmark = [
    accord_only,
    pytest.mark.skipif(find_spec("schemathesis") is None, reason="needs schemathesis"),
]


async def check(url: str, mqtt_url: str, user: str, phases: str, examples: int) -> str:
    """The output of schemathesis if it found something, while the clients are connected."""
    credentials: dict[str, Any] = {"username": "root", "password": PASSWORD} if user else {}
    async with AsyncExitStack() as stack:
        for name in CLIENTS:
            session = accord.connect(mqtt_url, client_id=name, **credentials)
            joined = await stack.enter_async_context(session)
            wanted = accord.Expectation.of({"latency": (0, 200)})
            await stack.enter_async_context(joined.subscribe("uav/imagery", expect=[wanted]))
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run"]
        command += [f"{url}/openapi.json", "--seed", "1", "--no-shrink", "--continue-on-failure"]
        command += [
            "--request-timeout",
            "60",
            "--workers",
            "2",
            "--phases",
            phases,
            "--max-examples",
            str(examples),
        ]
        command += ["--auth", f"{user}:{PASSWORD}"] if user else []
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output, _ = await process.communicate()
    text = output.decode(errors="replace")
    return "" if process.returncode == 0 and "Tested: " in text else text


@pytest.mark.parametrize(
    ("user", "phases", "examples"),
    [
        ("", "examples,coverage,stateful", 1),
        ("root", "examples,fuzzing", 2),
        ("reader", "examples", 1),
    ],
)
def test_answers_are_as_the_document_says(user: str, phases: str, examples: int) -> None:
    with start_with_http(USERS if user else "", extra=["--demo"]) as (broker, url):
        mqtt_url = f"mqtt://{broker.host}:{broker.port}"
        found = asyncio.run(check(url, mqtt_url, user, phases, examples))
    assert not found, "\n".join(line[:2_000] for line in found.splitlines())
