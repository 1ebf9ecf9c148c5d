"""`accord channel …` at a node that has no `[net]`: its channels work, and outlive it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.ports import free_port
from typer.testing import CliRunner

import accord
from accord.cli.main import app
from tests.brokers import HOST, start_accord
from tests.cli.conftest import wait_for

TEMPLATES = ("local", "reliable", "routed", "single_source", "total_order", "unreliable")


def command(http: int, *arguments: str) -> str:
    environment = {"COLUMNS": "100", "ACCORD_HTTP_URL": f"http://{HOST}:{http}"}
    heard = CliRunner().invoke(app, ["channel", *arguments], env=environment)
    assert heard.exit_code == 0, heard.output
    return heard.stdout


async def exchange(url: str, channel: str) -> list[str]:
    async with accord.connect(url) as session, session.subscribe(channel, qos=1) as events:
        for text in ("one", "two"):
            await session.publish(channel, text, qos=1)
        async with asyncio.timeout(20):
            return [(await anext(events)).text for _ in range(2)]


async def past(url: str, channel: str) -> list[str]:
    async with accord.connect(url) as session, session.subscribe(channel, qos=1) as events:
        async with asyncio.timeout(20):
            return [(await anext(events)).text for _ in range(2)]


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_delivers(template: str) -> None:
    http = free_port()
    with start_accord(extra=["--http", f"{HOST}:{http}"]) as broker:
        wait_for(http)
        command(http, "create", "room/a", "--template", template)
        url = f"mqtt://{HOST}:{broker.port}"
        assert asyncio.run(exchange(url, "room/a")) == ["one", "two"]


def test_channels_are_listed_survive_a_restart_and_are_deleted(tmp_path: Path) -> None:
    http = free_port()
    with start_accord(tmp_path, extra=["--http", f"{HOST}:{http}"]) as broker:
        wait_for(http)
        command(http, "create", "chat/#", "--template", "total_order", "--persistent")
        asyncio.run(exchange(f"mqtt://{HOST}:{broker.port}", "chat/a"))
    with start_accord(tmp_path, extra=["--http", f"{HOST}:{http}"]) as broker:
        wait_for(http)
        assert "chat/#" in command(http, "ls")
        assert "total_order" in command(http, "show", "chat/a")
        assert asyncio.run(past(f"mqtt://{HOST}:{broker.port}", "chat/a")) == ["one", "two"]
        command(http, "rm", "chat/#")
        assert "chat/#" not in command(http, "ls")
    with start_accord(tmp_path, extra=["--http", f"{HOST}:{http}"]):
        wait_for(http)
        assert "chat/#" not in command(http, "ls")
