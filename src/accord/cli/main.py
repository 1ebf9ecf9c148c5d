"""The `accord` command."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from accord.core.model.errors import AccordError, file_problem

if TYPE_CHECKING:
    from typer._click import Command, Context

# A command's module is imported when the command is used: help lists them without.
_COMMANDS: Final = {
    "up": "Run a node until Ctrl-C or SIGTERM.",
    "pub": "Publish an event, or many.",
    "sub": "Show events as they arrive, until Ctrl-C; with --since, kept events first.",
    "query": "Find kept events by channel, content and time, including the latest.",
    "bench": "Measure how fast events go through a node, and how long they take.",
    "status": "Show what a node does: clients, rates, queues, what was shed, the journal.",
    "top": "Watch a node: channels, clients and their links, queues, what policies decide.",
    "why": "Say why an event arrived as it did, and show its outcome for each destination.",
    "sql": "Query the tables of an archive by SQL, on Spark or DataFusion.",
    "broker": "Match a table or stream of events with many predicates, on Spark.",
    "report": "Report delivered quality: rates, latency, losses, slow subscriptions.",
    "config": "Print an accord.toml with every setting and its default, or check one.",
    "agent": "Run a program, and reconfigure it when the node advises other values.",
    "context": "Name nodes, and choose the one that commands use.",
    "sim": "Simulate networks of nodes in virtual time.",
    "clients": "List, show, disconnect and forget clients.",
    "retained": "List and remove retained messages.",
    "net": "Show all nodes: links, channels, routes, and what arrives in time.",
    "channel": "Define and list channels: their delivery guarantees between nodes.",
    "policy": "Show, change and explain the policies of a node.",
    "quality": "Show negotiated quality: profiles, expectations, their states and why.",
    "admission": "Show advertised filters, reserved and free resources, refusals.",
    "demo": "Run a demonstration with nodes of its own.",
    "pipeline": "Archive the journals of many nodes and answer their queries.",
    "spark": "Start servers of a Spark cluster: master, worker, Spark Connect.",
    "user": "Prepare entries for users in accord.toml.",
    "predicate": "Try predicates: explain, match, compare them.",
}
_HELP: Final = """\
Publish, subscribe and query, with quality of service: what matters arrives in time.

Exit codes: 0 done; 1 refused, failed, or nothing found; 2 usage error, or no node answers;
3 unknown (predicate covers and intersects); 130 interrupted.
"""


_MALFORMED: Final = (400, 401, 413, 415, 422)  # as answers to what was given, not to what is there


class Commands(TyperGroup):
    """Error boundary: problems become messages and exit codes."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **extra)
        except AccordError as error:
            # Imported late, so that the command starts faster.
            from accord.terminal.screen import open_console, print_problem  # noqa: PLC0415

            print_problem(open_console(stderr=True), error)
            if _is_refusal(error):
                sys.exit(1)
        except OSError as error:
            # A full disk, or a closed terminal; a closed pipe is handled above.
            place = "" if error.filename is None else f"{error.filename}: "
            typer.echo(f"error: {place}{file_problem(error)}", err=True)
        sys.exit(2)


def _is_refusal(error: AccordError) -> bool:
    """Whether a node refused a valid request, for what it has or permits."""
    from accord.client.http import NodeRejectedError  # noqa: PLC0415 (slow to import)

    return isinstance(error, NodeRejectedError) and error.status not in _MALFORMED


class LazyCommands(Commands):
    """Loads the module of a command when it is used; lists all by their summaries."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = CommandTable()
        self._is_listing = False

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        if self._is_listing and cmd_name in _COMMANDS:
            return TyperCommand(cmd_name, help=_COMMANDS[cmd_name])
        return super().get_command(ctx, cmd_name)

    def list_commands(self, _ctx: Context) -> list[str]:
        return list(_COMMANDS)

    def format_help(self, ctx: Context, formatter: Any) -> None:
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Context, incomplete: str) -> Any:
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False


class CommandTable(MutableMapping[str, "Command"]):
    """The commands by name, each built when it is first asked for."""

    def __init__(self) -> None:
        self._built: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._built:
            self._built[name] = _build(name, _COMMANDS[name])
        return self._built[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


def _build(name: str, summary: str) -> Command:
    loaded = importlib.import_module(f"accord.cli.{name}")
    group = typer.Typer(add_completion=False)
    if hasattr(loaded, "app"):
        group.add_typer(loaded.app, name=name, help=summary)
    else:
        group.command(name)(getattr(loaded, name))
    return typer.main.get_group(group).commands[name]


app = typer.Typer(
    cls=LazyCommands, no_args_is_help=True, pretty_exceptions_enable=False, help=_HELP
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version  # noqa: PLC0415 (slow to import)

        typer.echo(f"accord {version('accord')}")
        raise typer.Exit


@app.callback()
def prepare(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    _reopen_closed()
    # A terminal that can't show a character shows its escape instead.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _reopen_closed() -> None:
    """Replace standard streams that were closed before the start, for which Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
