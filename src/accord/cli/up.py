"""`accord up`: run a node."""

from __future__ import annotations

import asyncio
import signal
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from accord.cli.connection import DEFAULT_URL

if TYPE_CHECKING:
    from accord.config import Config
    from accord.runtime.node import ListenerSettings, Node, Settings
    from accord.runtime.pipeline import PipelineOptions
    from accord.runtime.quality import QualityOptions
    from accord.runtime.users import Users

DEMO_CHANNELS: Final = ("demo/#",)
DEMO_ATTRIBUTES: Final = {"load_mw": "float", "temperature_c": "float", "status": "string"}
DEMO_RETAIN_S: Final = 604_800


def up(  # noqa: PLR0913, PLR0917 (a parameter per option)
    mqtt: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="MQTT listener; default 127.0.0.1:1883."),
    ] = None,
    websocket: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="MQTT over WebSocket; default 127.0.0.1:8083."),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="HTTP API and metrics; default 127.0.0.1:8080."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Data directory; default accord-data, nothing is kept if empty."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Configuration; default: ./accord.toml if it exists."),
    ] = None,
    demo: Annotated[
        bool | None,
        typer.Option(
            "--demo/--no-demo", help="Publish demonstration events to demo/…; default on."
        ),
    ] = None,
    pipeline: Annotated[
        bool | None,
        typer.Option(
            "--pipeline/--no-pipeline", help="Archive kept events and answer queries; default on."
        ),
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where Spark runs: spark://…, sc://…; default: in a process beside the node.",
        ),
    ] = None,
) -> None:
    """Run a node until Ctrl-C or SIGTERM.

    Addresses are HOST:PORT; an empty one switches that listener off.
    """
    # Imported late, so that other commands start faster.
    import uvloop  # noqa: PLC0415
    from msgspec.structs import replace  # noqa: PLC0415

    from accord.config import load  # noqa: PLC0415
    from accord.runtime.logs import start_logs  # noqa: PLC0415

    settings = load(config, mqtt=mqtt, websocket=websocket, http=http, data=data, spark=spark)
    if pipeline is not None:
        changed = replace(settings.pipeline, enabled=pipeline)
        settings = replace(settings, pipeline=changed)
    _check_data(settings.node.directory)
    with start_logs(settings.log):
        uvloop.run(_run(settings, has_demo=settings.demo.enabled if demo is None else demo))


def _check_data(folder: Path | None) -> None:
    """Create the directory, so that an unusable one is an error before anything starts."""
    import os  # noqa: PLC0415

    from accord.cli.errors import InputError  # noqa: PLC0415

    if folder is None:
        return
    problem = "permission denied"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        problem = "is a file"
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
    else:
        if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return
    raise InputError(
        str(folder), f"can't keep data there ({problem}); name a directory with --data"
    )


async def _run(config: Config, *, has_demo: bool) -> None:
    from accord.runtime.node import Node  # noqa: PLC0415
    from accord.runtime.process import collect_seldom  # noqa: PLC0415
    from accord.runtime.users import Users  # noqa: PLC0415

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    users = Users(config.users, anonymous=config.anonymous_rights)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(
            Node(node_settings(config, has_demo=has_demo), users)
        )
        urls = await _serve_http(config, node, users, stack)
        stack.callback(node.pipeline.refuse_all)  # first on exit: HTTP waits for its queries
        demo_url = _demo_url(config, node) if has_demo else None
        collect_seldom()
        _announce(node, urls, demo_url)
        if demo_url is not None:
            from accord.apps.demonstrations.stream import run_demo  # noqa: PLC0415

            demo = asyncio.create_task(run_demo(demo_url), name="accord-demo")
            stack.push_async_callback(_cancel, demo)
        await stop.wait()
        typer.echo("stopping")


def node_settings(config: Config, *, has_demo: bool = False) -> Settings:
    from accord.config.net import (  # noqa: PLC0415
        admission_options,
        net_options,
    )
    from accord.runtime.node import Settings  # noqa: PLC0415

    keeps_demo = has_demo and _keeps_demo(config)
    return Settings(
        name=config.node.actual_name,
        data=config.node.directory,
        listeners=_listeners(config),
        origins=config.listen.origins,
        limits=config.limits,
        kept=DEMO_CHANNELS if keeps_demo else config.kept_channels,
        policies=Path(config.policies.file) if config.policies.file else None,
        journal=config.journal.options(),
        statistics_s=config.node.statistics_s,
        pipeline=_pipeline(config, keeps_demo=keeps_demo),
        net=net_options(config),
        quality=_quality(config),
        admission=admission_options(config.admission),
    )


def _quality(config: Config) -> QualityOptions:
    from accord.runtime.quality import QualityOptions  # noqa: PLC0415

    settings = config.quality
    return QualityOptions(
        strategy=settings.strategy,
        properties=Path(settings.properties) if settings.properties else None,
        reaction_timeout_ms=settings.reaction_timeout_ms,
    )


def _keeps_demo(config: Config) -> bool:
    """Whether the demonstration's events are kept, so that there is something to query."""
    has_something = bool(config.keep) or config.anonymous_rights is None
    return config.pipeline.enabled and bool(config.node.data) and not has_something


def _pipeline(config: Config, *, keeps_demo: bool) -> PipelineOptions | None:
    from accord.runtime.pipeline import PipelineOptions  # noqa: PLC0415

    settings = config.pipeline
    if not settings.enabled:
        return None
    retain_s = settings.retain_s or (DEMO_RETAIN_S if keeps_demo else 0)
    return PipelineOptions(
        spark=settings.spark,
        archive=Path(settings.archive) if settings.archive else None,
        interval_ms=settings.interval_ms,
        retain_ms=retain_s * 1_000 or None,
        large_bytes=settings.large_bytes,
        memory_mb=settings.memory_mb,
        timeout_s=settings.timeout_s,
        declared=DEMO_ATTRIBUTES if keeps_demo else config.declared,
    )


async def _serve_http(config: Config, node: Node, users: Users, stack: AsyncExitStack) -> list[str]:
    """Serve status and metrics until `stack` is closed; returns the URLs."""
    listen = config.listen
    if not (listen.http or listen.https):
        return []
    from accord.http.app import KeptView, create_app  # noqa: PLC0415
    from accord.http.server import serve  # noqa: PLC0415
    from accord.runtime.durability import EVENTS  # noqa: PLC0415

    tls = _tls(config) if listen.https else None
    folder = config.node.directory
    journal = None if folder is None else folder / EVENTS
    kept = KeptView(pipeline=node.pipeline, registry=node.registry, journal=journal)
    urls = []
    for scheme, addresses, context in (("http", listen.http, None), ("https", listen.https, tls)):
        for address in addresses:
            assert node.policy_runtime is not None
            app = create_app(
                node,
                ledger=node.policy_runtime.monitor,
                admin=node.policy_runtime.admin,
                kept=kept,
                net=node.net,
                quality=node.quality,
                admission=node.admission,
                users=users,
                is_loopback=address.is_loopback,
                origins=listen.origins,
            )
            server = await serve(app, address, tls=context)
            stack.push_async_callback(server.stop)
            urls.append(f"{scheme}://{server.address}")
    return urls


def _listeners(config: Config) -> tuple[ListenerSettings, ...]:
    from accord.runtime.node import ListenerSettings  # noqa: PLC0415

    listen = config.listen
    tls = _tls(config) if listen.mqtts or listen.websockets else None
    return (
        *(ListenerSettings(address) for address in listen.mqtt),
        *(ListenerSettings(address, tls=tls) for address in listen.mqtts),
        *(ListenerSettings(address, is_websocket=True) for address in listen.websocket),
        *(ListenerSettings(address, is_websocket=True, tls=tls) for address in listen.websockets),
    )


def _tls(config: Config) -> ssl.SSLContext:
    from accord.runtime.tls import server_context  # noqa: PLC0415

    return server_context(config.tls)


def _demo_url(config: Config, node: Node) -> str | None:
    """Where the demonstration can connect as a local client; None if nowhere."""
    if config.anonymous_rights is None:
        return None
    for listener, address in zip(node.settings.listeners, node.addresses, strict=True):
        if _scheme(listener) == "mqtt" and address.is_loopback:
            return f"mqtt://{address}"
    return None


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _announce(node: Node, urls: list[str], demo_url: str | None) -> None:
    from accord.core.router.limits import BUILD  # noqa: PLC0415

    listening = [
        f"{_scheme(listener)}://{address}"
        for listener, address in zip(node.settings.listeners, node.addresses, strict=True)
    ]
    where = node.settings.data
    typer.echo(f"accord {node.version} ({BUILD}): node {node.name} is ready")
    links = [] if node.net is None else [f"links at {each}" for each in node.net.addresses]
    for url in (*listening, *urls, *links):
        typer.echo(f"  {url}")
    typer.echo(f"  data in {where}" if where else "  nothing is kept on disk")
    typer.echo(f"  pipeline: {_pipeline_words(node)}")
    if demo_url is not None:
        option = "" if demo_url == DEFAULT_URL else f" --url {demo_url}"
        typer.echo(f"try: accord sub 'demo/feeder/+' --where \"load_mw > 4\"{option}")


def _pipeline_words(node: Node) -> str:
    pipeline = node.pipeline
    if not pipeline.is_enabled:
        return f"off, {pipeline.health.problem}"
    where = pipeline.options.spark or "Spark in its own process"
    return f"starting ({where}), archive in {pipeline.archive}"


def _scheme(listener: ListenerSettings) -> str:
    name = "ws" if listener.is_websocket else "mqtt"
    return f"{name}s" if listener.tls else name
