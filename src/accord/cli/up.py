"""`accord up`: run a node."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from accord.cli.connection import DEFAULT_URL
from accord.cli.parameters import flag, option

if TYPE_CHECKING:
    from accord.config import Config
    from accord.runtime.node import Node
    from accord.runtime.users import Users


def up(
    mqtt: str | None = option("HOST:PORT", "MQTT listener; default 127.0.0.1:1883."),
    websocket: str | None = option("HOST:PORT", "MQTT over WebSocket; default 127.0.0.1:8083."),
    http: str | None = option("HOST:PORT", "Console, API, metrics; default 127.0.0.1:8080."),
    data: str | None = option(
        "DIR", "Data directory; default accord-data, nothing is kept if empty."
    ),
    config: Path | None = option("FILE", "Configuration; default: ./accord.toml if it exists."),
    demo: bool | None = flag(
        "Publish demonstration events to demo/…; default on.", "--demo/--no-demo", default=None
    ),
    pipeline: bool | None = flag(
        "Archive kept events and answer queries; default on.",
        "--pipeline/--no-pipeline",
        default=None,
    ),
    spark: str | None = option(
        "URL", "Where Spark runs: spark://…, sc://…; default: in a process beside the node."
    ),
) -> None:
    """Run a node until Ctrl-C or SIGTERM.

    Addresses are HOST:PORT; an empty one switches that listener off.
    """
    # Imported late, so that other commands start faster.
    import uvloop  # noqa: PLC0415
    from msgspec.structs import replace  # noqa: PLC0415

    from accord.config import load  # noqa: PLC0415
    from accord.config.node import prepare_directory  # noqa: PLC0415
    from accord.runtime.logs import start_logs  # noqa: PLC0415

    settings = load(config, mqtt=mqtt, websocket=websocket, http=http, data=data, spark=spark)
    if pipeline is not None:
        changed = replace(settings.pipeline, enabled=pipeline)
        settings = replace(settings, pipeline=changed)
    prepare_directory(settings.node.directory)
    with start_logs(settings.log):
        uvloop.run(_run(settings, has_demo=settings.demo.enabled if demo is None else demo))


async def _run(config: Config, *, has_demo: bool) -> None:
    from accord.config.node import node_settings  # noqa: PLC0415
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


async def _serve_http(config: Config, node: Node, users: Users, stack: AsyncExitStack) -> list[str]:
    """Serve the console, the API and metrics until `stack` is closed; returns the URLs."""
    listen = config.listen
    if not (listen.http or listen.https):
        return []
    from accord.http.app import create_app  # noqa: PLC0415
    from accord.http.live import LiveStream  # noqa: PLC0415
    from accord.http.server import serve  # noqa: PLC0415
    from accord.http.sessions import Sessions  # noqa: PLC0415
    from accord.runtime.tls import server_context  # noqa: PLC0415

    sessions = Sessions(users)
    tls = server_context(config.tls) if listen.https else None
    live = LiveStream(node.ports)
    urls = []
    for scheme, addresses, context in (("http", listen.http, None), ("https", listen.https, tls)):
        for address in addresses:
            app = create_app(
                node.ports,
                users=users,
                is_loopback=address.is_loopback,
                origins=listen.origins,
                sessions=sessions,
                live=live,
                site=node.pipeline.site,
            )
            mqtt = node.page_protocol(is_loopback=address.is_loopback)
            server = await serve(app, address, tls=context, mqtt=mqtt)
            stack.push_async_callback(server.stop)
            urls.append(f"{scheme}://{server.address}")
    return urls


def _demo_url(config: Config, node: Node) -> str | None:
    """Where the demonstration can connect as a local client; None if nowhere."""
    if config.anonymous_rights is None:
        return None
    for listener, address in zip(node.settings.listeners, node.addresses, strict=True):
        if listener.scheme == "mqtt" and address.is_loopback:
            return f"mqtt://{address}"
    return None


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _announce(node: Node, urls: list[str], demo_url: str | None) -> None:
    from accord.core.router.limits import BUILD  # noqa: PLC0415

    listening = [
        f"{listener.scheme}://{address}"
        for listener, address in zip(node.settings.listeners, node.addresses, strict=True)
    ]
    where = node.settings.data
    typer.echo(f"accord {node.version} ({BUILD}): node {node.name} is ready")
    links = [] if node.net is None else [f"links at {each}" for each in node.net.addresses]
    consoles = [f"console at {each}" for each in urls]
    for url in (*listening, *consoles, *links):
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
    if pipeline.site is not None:
        return "that of the site, which connects over HTTP (accord pipeline)"
    where = pipeline.options.spark or "Spark in its own process"
    return f"starting ({where}), archive in {pipeline.archive}"
