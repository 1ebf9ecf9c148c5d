"""`accord policy …`: read-only commands."""

# Imports stand in the commands: help and completion must not wait for parsers and tables.
# ruff: noqa: PLC0415

from __future__ import annotations

from typing import Annotated

import typer

from accord.cli.connection import DEFAULT_HTTP_URL, Authority, HttpUrl, User
from accord.cli.policy.options import File, IsJson, Names, echo, find_node


def list_(
    *,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show strategy, limits and all policies in a table."""
    from accord.cli.policy.screen import show_policy_set
    from accord.cli.screen import open_console
    from accord.core.policy.policy_set import write_json

    policy_set = find_node(url, user, authority).policies()
    if is_json:
        typer.echo(write_json(policy_set))
    else:
        show_policy_set(open_console(), policy_set)


def show(
    name: Annotated[str | None, typer.Argument(metavar="NAME", show_default=False)] = None,
    *,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Print everything, or the policy NAME, in the format of a file."""
    from accord.cli.errors import InputError
    from accord.cli.policy.files import policy_json, policy_toml
    from accord.core.policy.policy_set import write_json

    node = find_node(url, user, authority)
    if name is None:
        typer.echo(write_json(node.policies()) if is_json else node.toml().rstrip())
        return
    policy = node.policies().policy(name)
    if policy is None:
        raise InputError("NAME", f"there is no policy {name!r}; `accord policy list` shows them")
    typer.echo(policy_json(policy) if is_json else policy_toml(policy))


def explain(  # noqa: PLR0913 (a parameter per option)
    *,
    channel: Annotated[str, typer.Option(metavar="CHANNEL", help="A channel, not a filter.")],
    operation: Annotated[
        str, typer.Option(metavar="NAME", help="publish, subscribe or query.")
    ] = "subscribe",
    client: Annotated[str, typer.Option(metavar="NAME", help="The client's name.")] = "",
    by_user: Annotated[
        str | None,
        typer.Option(
            "--by-user", metavar="NAME", help="User of the client; default: as it is connected."
        ),
    ] = None,
    group: Annotated[Names, typer.Option(help="A group of that user; may be repeated.")] = None,
    publisher: Annotated[
        str, typer.Option(metavar="NAME", help="Client that publishes, for deliveries.")
    ] = "",
    attribute: Annotated[
        Names, typer.Option(metavar="NAME=VALUE", help="Attribute of the event; may be repeated.")
    ] = None,
    payload_bytes: Annotated[
        int | None, typer.Option(min=0, help="Payload size of the event.")
    ] = None,
    resource: Annotated[
        Names,
        typer.Option(metavar="NAME=NUMBER", help="Assumed value of a resource; with --file only."),
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Explain by this file instead of a node.")
    ] = None,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show which policies decide, and why others do not."""
    from accord.cli.policy.edits import read_pairs, read_resources
    from accord.cli.policy.explanation import explain_offline, show_explanation
    from accord.cli.screen import open_console
    from accord.runtime.policy_admin import ExplainRequest

    question = ExplainRequest(
        operation=operation,
        channel=channel,
        client=client,
        user=by_user,
        groups=None if group is None else tuple(group),
        publisher=publisher,
        attributes=None if attribute is None else dict(read_pairs(attribute, "--attribute")),
        payload_bytes=payload_bytes,
        resources=None if resource is None else read_resources(resource),
    )
    if file is not None:
        explanation = explain_offline(file, question)
    elif resource is not None:
        raise typer.BadParameter("give --file too: a node knows its own resources")
    else:
        explanation = find_node(url, user, authority).explain(question)
    if is_json:
        echo(explanation)
    else:
        show_explanation(open_console(), explanation)


def history(
    *,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show who changed what, and which versions can be restored."""
    from accord.cli.policy.screen import show_history
    from accord.cli.screen import open_console

    versions = find_node(url, user, authority).history()
    if is_json:
        echo(versions)
    else:
        show_history(open_console(), versions)


def check(file: File) -> None:
    """Say whether FILE could be applied, without a node."""
    from accord.cli.policy.files import read_policies, read_text

    count = len(read_policies(file, read_text(file)).policies)
    typer.echo(f"{file}: good, {count:,} {'policy' if count == 1 else 'policies'}")


def presets() -> None:
    """Show the preferences that have names."""
    from accord.cli.policy.screen import show_presets
    from accord.cli.screen import open_console

    show_presets(open_console())
