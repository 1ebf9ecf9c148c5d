"""`accord predicate …`: test predicates offline."""

# Imports stand in the commands: help and completion must not wait for parsers and tables.
# ruff: noqa: PLC0415

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Try predicates: explain, match, compare them.")

PredicateText = Annotated[
    str, typer.Argument(metavar="PREDICATE", help="A selector such as: load_mw > 4")
]
A = Annotated[str, typer.Argument(metavar="A", help="A predicate")]
B = Annotated[str, typer.Argument(metavar="B", help="Another predicate")]
EventsFile = Annotated[
    str | None,
    typer.Argument(metavar="EVENTS", help="JSON lines, - for stdin; a sample if left out"),
]
IsXPath = Annotated[bool, typer.Option("--xpath", help="The predicate is an XPath 1.0 condition")]
Namespaces = Annotated[
    list[str] | None,
    typer.Option("--namespace", metavar="PREFIX=URI", help="For XPath; may be repeated"),
]


@app.command()
def explain(
    text: PredicateText, *, is_xpath: IsXPath = False, namespace: Namespaces = None
) -> None:
    """Show what a predicate says and what it reads."""
    from accord.cli.explain import show_explanation
    from accord.cli.predicate_text import read_namespaces, read_predicate
    from accord.cli.screen import open_console

    namespaces = read_namespaces(namespace or ())
    show_explanation(open_console(), read_predicate(text, is_xpath=is_xpath, namespaces=namespaces))


@app.command()
def match(  # noqa: PLR0913 (a parameter per option)
    text: PredicateText,
    events_file: EventsFile = None,
    *,
    is_xpath: IsXPath = False,
    namespace: Namespaces = None,
    channel: Annotated[
        str | None, typer.Option(metavar="FILTER", help="Only these channels, such as grid/#")
    ] = None,
    is_inverted: Annotated[
        bool, typer.Option("--invert", help="Show the events that do not match")
    ] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON lines, as read")] = False,
    is_count: Annotated[bool, typer.Option("--count", help="Print only how many")] = False,
) -> None:
    """Show the events that match.

    Exit code 0 if any does, 1 if none, 2 for a usage error.
    """
    from accord.cli.events import read_events
    from accord.cli.match import MatchSelection, print_count, print_json, print_table
    from accord.cli.predicate_text import check_filter, read_namespaces, read_predicate
    from accord.cli.screen import open_console, print_line

    if is_json and is_count:
        raise typer.BadParameter("give one of --json and --count")
    selection = MatchSelection(
        read_predicate(text, is_xpath=is_xpath, namespaces=read_namespaces(namespace or ())),
        None if channel is None else check_filter(channel),
        is_inverted,
    )
    if events_file is None:
        print_line(
            open_console(stderr=True), "using the sample events; give a file, or - for stdin"
        )
    events = read_events(events_file)
    if is_count:
        number = print_count(selection, events)
    elif is_json:
        number = print_json(selection, events)
    else:
        number = print_table(open_console(), selection, events)
    raise typer.Exit(0 if number else 1)


@app.command()
def covers(a: A, b: B, *, is_xpath: IsXPath = False, namespace: Namespaces = None) -> None:
    """Say whether every event that matches B matches A.

    Exit code 0 for yes, 1 for no, 3 for unknown, 2 for a usage error.
    """
    from accord.cli.predicate_relations import EXIT_CODES, show_covers
    from accord.cli.predicate_text import read_namespaces, read_predicate
    from accord.cli.screen import open_console

    namespaces = read_namespaces(namespace or ())
    p, q = (read_predicate(text, is_xpath=is_xpath, namespaces=namespaces) for text in (a, b))
    raise typer.Exit(EXIT_CODES[show_covers(open_console(), p, q)])


@app.command()
def intersects(a: A, b: B, *, is_xpath: IsXPath = False, namespace: Namespaces = None) -> None:
    """Say whether an event can match both A and B.

    Exit code 0 for yes, 1 for no, 3 for unknown, 2 for a usage error.
    """
    from accord.cli.predicate_relations import EXIT_CODES, show_intersects
    from accord.cli.predicate_text import read_namespaces, read_predicate
    from accord.cli.screen import open_console

    namespaces = read_namespaces(namespace or ())
    p, q = (read_predicate(text, is_xpath=is_xpath, namespaces=namespaces) for text in (a, b))
    raise typer.Exit(EXIT_CODES[show_intersects(open_console(), p, q)])
