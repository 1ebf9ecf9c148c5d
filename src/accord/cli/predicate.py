"""`accord predicate …`: test predicates offline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from accord.apps.event_files.json_lines import ReadEvent, read_events
from accord.cli.arguments import check_filter, read_namespaces, read_predicate
from accord.cli.parameters import argument, flag, option, shared
from accord.core.model.channels import filter_selects
from accord.core.predicates.terms import index_use
from accord.core.predicates.tree import (
    And,
    Attribute,
    Expr,
    Literal,
    Not,
    Or,
    PathTest,
    XPath,
    render_name,
    walk,
)
from accord.predicates import Predicate, covers, intersects
from accord.terminal.event_lines import attribute_texts
from accord.terminal.rows import Cell, Figure, fields, table
from accord.terminal.screen import open_console, print_line, safe

app = typer.Typer(no_args_is_help=True, help="Try predicates: explain, match, compare them.")

PredicateText = Annotated[str, argument("PREDICATE", "A selector such as: load_mw > 4")]
A = Annotated[str, argument("A", "A predicate")]
B = Annotated[str, argument("B", "Another predicate")]
EventsFile = Annotated[
    str | None, argument("EVENTS", "JSON lines, - for stdin; a sample if left out")
]
IsXPath = Annotated[bool, shared("", "The predicate is an XPath 1.0 condition", "--xpath")]
Namespaces = Annotated[
    list[str] | None, shared("PREFIX=URI", "For XPath; may be repeated", "--namespace")
]


@app.command()
def explain(
    text: PredicateText, *, is_xpath: IsXPath = False, namespace: Namespaces = None
) -> None:
    """Show what a predicate says and what it reads."""
    namespaces = read_namespaces(namespace or ())
    show_explanation(open_console(), read_predicate(text, is_xpath=is_xpath, namespaces=namespaces))


@app.command()
def match(
    text: PredicateText,
    events_file: EventsFile = None,
    *,
    is_xpath: IsXPath = False,
    namespace: Namespaces = None,
    channel: str | None = option("FILTER", "Only these channels, such as grid/#"),
    is_inverted: bool = flag("Show the events that do not match", "--invert"),
    is_json: bool = flag("Print JSON lines, as read", "--json"),
    is_count: bool = flag("Print only how many", "--count"),
) -> None:
    """Show the events that match.

    Exit code 0 if any does, 1 if none, 2 for a usage error.
    """
    if is_json and is_count:
        raise typer.BadParameter("give one of --json and --count")
    predicate = read_predicate(text, is_xpath=is_xpath, namespaces=read_namespaces(namespace or ()))
    if channel is not None:
        check_filter(channel)
    if events_file is None:
        print_line(
            open_console(stderr=True), "using the sample events; give a file, or - for stdin"
        )
    total, number, shown = 0, 0, []
    for read in read_events(events_file):
        if channel is not None and not filter_selects(channel, read.event.channel):
            continue
        total += 1
        if predicate.matches(read.event) is is_inverted:
            continue
        number += 1
        if is_json:
            typer.echo(read.text)  # as soon as it is read
        elif not is_count:
            shown.append(read)
    if is_count:
        typer.echo(number)
    elif not is_json:
        console = open_console()
        if shown:
            console.print(table(ReadEventRow, map(_row, shown)))
            console.print()
        verb = "matches" if number == 1 else "match"
        if is_inverted:
            verb = "does not match" if number == 1 else "do not match"
        print_line(console, f"{number or 'none'} of {total} events {verb}")
    raise typer.Exit(0 if number else 1)


@app.command("covers")
def compare_covers(a: A, b: B, *, is_xpath: IsXPath = False, namespace: Namespaces = None) -> None:
    """Say whether every event that matches B matches A.

    Exit code 0 for yes, 1 for no, 3 for unknown, 2 for a usage error.
    """
    _compare(covers, _COVERS, [a, b], read_namespaces(namespace or ()), is_xpath=is_xpath)


@app.command("intersects")
def compare_intersects(
    a: A, b: B, *, is_xpath: IsXPath = False, namespace: Namespaces = None
) -> None:
    """Say whether an event can match both A and B.

    Exit code 0 for yes, 1 for no, 3 for unknown, 2 for a usage error.
    """
    _compare(intersects, _INTERSECTS, [a, b], read_namespaces(namespace or ()), is_xpath=is_xpath)


class ReadEventRow(msgspec.Struct, frozen=True):
    line: Figure
    channel: str
    attributes: Cell


def _row(read: ReadEvent) -> ReadEventRow:
    """Values from XML metadata follow a mark."""
    pairs = Text("  ").join(attribute_texts(read.event, mark="XML: "))
    return ReadEventRow(Text(str(read.line), "dim"), read.event.channel, pairs)


_JUNCTIONS: Final = {And: "all of", Or: "any of", Not: "not"}


def show_explanation(console: Console, predicate: Predicate) -> None:
    nodes = list(walk(predicate.tree))
    facts = [("canonical", str(predicate)), ("digest", predicate.digest)]
    if names := {render_name(each.name) for each in nodes if isinstance(each, Attribute)}:
        facts.append(("attributes", ", ".join(sorted(names))))
    if paths := {each.path for each in nodes if isinstance(each, PathTest)}:
        facts.append(("XML paths", ", ".join(sorted(paths))))
    # Conditions that have no equivalent in the tree, and need an XPath engine.
    if conditions := {each.expression for each in nodes if isinstance(each, XPath)}:
        facts.append(("XPath", "; ".join(sorted(conditions))))
    facts.append(("index", index_use(predicate.tree)))
    console.print(fields(facts))
    console.print()
    if isinstance(predicate.tree, Literal):
        print_line(console, f"matches {'every' if predicate.tree.value else 'no'} event")
    else:
        console.print(_draw(predicate.tree))


def _draw(node: Expr) -> Tree:
    # Iterative, like all walks over trees of unknown depth.
    root = Tree(_label(node), guide_style="dim")
    pending = [(node, root)]
    while pending:
        parent, branch = pending.pop()
        if type(parent) in _JUNCTIONS:
            pending.extend((child, branch.add(_label(child))) for child in parent.children)
    return root


def _label(node: Expr) -> Text:
    junction = _JUNCTIONS.get(type(node))
    return Text(junction, "bold") if junction else Text(safe(node.text))


Answer = bool | None

_EXIT_CODES: Final[Mapping[Answer, int]] = {True: 0, False: 1, None: 3}
_WORDS: Final[Mapping[Answer, str]] = {True: "yes", False: "no", None: "unknown"}
_COVERS: Final[Mapping[Answer, str]] = {
    True: "Yes: every event that matches B matches A.",
    False: "No: some events match B but not A.",
    None: "Unknown: whether every event that matches B matches A can't be told.",
}
_INTERSECTS: Final[Mapping[Answer, str]] = {
    True: "Yes: some events match both A and B.",
    False: "No: no event can match both A and B.",
    None: "Unknown: whether an event can match both A and B can't be told.",
}


def _compare(
    relation: Callable[[Predicate, Predicate], Answer],
    sentences: Mapping[Answer, str],
    texts: Sequence[str],
    namespaces: Mapping[str, str],
    *,
    is_xpath: bool,
) -> NoReturn:
    """Answer with the exit code, and show how A and B are related."""
    a, b = (read_predicate(text, is_xpath=is_xpath, namespaces=namespaces) for text in texts)
    answer = relation(a, b)
    console = open_console()
    print_line(console, sentences[answer])
    relations = [
        ("A", str(a)),
        ("B", str(b)),
        ("A covers B", _WORDS[covers(a, b)]),
        ("B covers A", _WORDS[covers(b, a)]),
        ("A intersects B", _WORDS[intersects(a, b)]),
    ]
    console.print()
    console.print(fields(relations))
    raise typer.Exit(_EXIT_CODES[answer])
