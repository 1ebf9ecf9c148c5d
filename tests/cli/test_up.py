"""`accord up`: the demonstration that it brings along."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.ports import free_port

import accord
from accord.cli.up import _demo_url, _pipeline_words
from accord.config import Config, parse
from accord.config.node import node_settings
from accord.config.settings import (
    AnonymousSettings,
    KeepSettings,
    NodeSettings,
    PipelineSettings,
    PoliciesSettings,
)
from accord.core.queries.spark_settings import SparkSettings
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import ListenerSettings
from accord.runtime.pipeline import Pipeline, PipelineOptions
from accord.runtime.users import User
from tests.brokers import HOST, start_accord

LIMIT_S = 60.0
HERE = SocketAddress(HOST, 1883)
ANYWHERE = SocketAddress("0.0.0.0", 1883)  # noqa: S104
ANN = User("ann", "a hash")


async def first_event(url: str, pattern: str, where: str) -> accord.Event:
    async with (
        asyncio.timeout(LIMIT_S),
        accord.connect(url) as session,
        session.subscribe(pattern, where=where) as events,
    ):
        return await anext(events)


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds what it says through /proc")
def test_the_demonstration_runs_and_is_announced() -> None:
    with start_accord(extra=["--demo"]) as broker:
        url = f"mqtt://{HOST}:{broker.port}"
        event = asyncio.run(first_event(url, "demo/feeder/+", "load_mw > 1"))
        said = Path(f"/proc/{broker.process.pid}/cwd/output.txt").read_text()
    assert event.attributes["substation"] in {"alder", "birch", "cedar"}
    assert f"try: accord sub 'demo/feeder/+' --where \"load_mw > 4\" --url {url}\n" in said


@pytest.mark.parametrize(
    ("config", "listeners", "url"),
    [
        (Config(), [ListenerSettings(HERE)], "mqtt://127.0.0.1:1883"),
        (
            Config(),
            [ListenerSettings(HERE, is_websocket=True), ListenerSettings(HERE)],
            "mqtt://127.0.0.1:1883",
        ),
        (Config(), [], None),
        (Config(), [ListenerSettings(HERE, is_websocket=True)], None),
        (Config(), [ListenerSettings(ANYWHERE)], None),
        (Config(users=(ANN,)), [ListenerSettings(HERE)], None),
        (
            Config(users=(ANN,), anonymous=AnonymousSettings(allowed=True)),
            [ListenerSettings(HERE)],
            "mqtt://127.0.0.1:1883",
        ),
    ],
)
def test_where_it_may_connect(
    config: Config, listeners: list[ListenerSettings], url: str | None
) -> None:
    node: Any = SimpleNamespace(
        settings=SimpleNamespace(listeners=listeners),
        addresses=[listener.address for listener in listeners],
    )
    assert _demo_url(config, node) == url


def test_the_configured_policies_reach_the_node() -> None:
    config = Config(policies=PoliciesSettings(file="policies.toml"))
    assert node_settings(config).policies == Path("policies.toml")
    assert node_settings(Config()).policies is None


def test_the_configured_pipeline_reaches_the_node() -> None:
    assert node_settings(Config(pipeline=PipelineSettings(enabled=False))).pipeline is None
    keep = KeepSettings(channels=("a",), attributes={"x": "float"})
    spark = SparkSettings(master="yarn", settings={"spark.executor.cores": "2"})
    settings = PipelineSettings(spark=spark, archive="b", retain_s=60)
    options = node_settings(Config(keep=(keep,), pipeline=settings), has_demo=True).pipeline
    assert options is not None
    assert (options.spark, options.archive, options.retain_ms) == ("yarn", "b", 60_000)
    assert options.spark_settings == {"spark.executor.cores": "2"}
    assert options.declared == {"x": "float"}


def test_the_demonstration_is_kept_where_nothing_else_is() -> None:
    kept = node_settings(Config(), has_demo=True)
    assert kept.kept == ("demo/#",)
    assert kept.pipeline is not None
    assert kept.pipeline.retain_ms == 604_800_000
    assert kept.pipeline.declared["load_mw"] == "float"
    for config, has_demo in (
        (Config(), False),
        (Config(pipeline=PipelineSettings(enabled=False)), True),
        (Config(node=NodeSettings(data="")), True),
        (Config(users=(ANN,)), True),
    ):
        other = node_settings(config, has_demo=has_demo)
        assert other.kept == ()
        assert other.pipeline is None or other.pipeline.retain_ms is None
    config = Config(keep=(KeepSettings(channels=("a",)),))
    assert node_settings(config, has_demo=True).kept == ("a",)


def test_what_is_said_of_the_pipeline(tmp_path: Path) -> None:
    def words(options: PipelineOptions | None) -> str:
        node: Any = SimpleNamespace(pipeline=Pipeline(options, node="a", data=tmp_path))
        return _pipeline_words(node)

    where = f"archive in {tmp_path / 'archive'}"
    assert words(PipelineOptions()) == f"starting (Spark in its own process), {where}"
    assert words(PipelineOptions(spark="sc://a:1")) == f"starting (sc://a:1), {where}"
    assert words(None).startswith("off, ")


def test_channels_count_where_there_are_no_other_nodes() -> None:
    net = node_settings(parse("[channels.chat]\ntemplate = 'reliable'")).net
    assert [(each.name, each.template) for each in net.channels] == [("chat", "reliable")]
    assert node_settings(Config()).net.is_alone


@pytest.mark.parametrize(("extra", "is_announced"), [((), False), (("--demo",), True)])
def test_the_configuration_switches_the_demonstration_off(
    tmp_path: Path, extra: tuple[str, ...], *, is_announced: bool
) -> None:
    (tmp_path / "accord.toml").write_text("[demo]\nenabled = false\n")
    command = [sys.executable, "-m", "accord", "up", "--mqtt", f"{HOST}:{free_port()}"]
    command += ["--http", "", "--websocket", "", "--no-pipeline", *extra]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = list(itertools.takewhile(lambda line: "pipeline: " not in line, process.stdout))
        process.send_signal(signal.SIGTERM)
        said += process.stdout
    assert any("try: accord sub" in line for line in said) == is_announced
