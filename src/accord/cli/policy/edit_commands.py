"""`accord policy …`: commands that change policies."""

# Imports stand in the commands: help and completion must not wait for parsers and tables.
# ruff: noqa: PLC0415

from __future__ import annotations

from typing import Annotated

import typer

from accord.cli.connection import DEFAULT_HTTP_URL, Authority, HttpUrl, User
from accord.cli.policy.options import (
    File,
    IfVersion,
    IsJson,
    Name,
    Names,
    echo,
    find_node,
    print_version,
)


def apply(  # noqa: PLR0913 (a parameter per option)
    file: File,
    *,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    if_version: IfVersion = None,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Replace all policies, limits and the strategy by those in FILE."""
    from accord.cli.policy.files import read_policies, read_text
    from accord.cli.policy.screen import show_dry_run
    from accord.cli.screen import open_console
    from accord.core.policy.policy_set import render_policy_set

    toml = render_policy_set(read_policies(file, read_text(file)))
    node = find_node(url, user, authority)
    if not is_dry:
        print_version(node.replace(toml, if_version), is_json=is_json)
        return
    result = node.dry_run(toml)
    if is_json:
        echo(result)
    else:
        show_dry_run(open_console(), result)


def put(  # noqa: PLR0913 (a parameter per option)
    file: File,
    *,
    if_version: IfVersion = None,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Add the policies in FILE, or replace those of the same names; the rest stays."""
    from accord.cli.policy.files import read_some, read_text
    from accord.core.policy.policy_set import render_policy_set, with_policy

    policies = read_some(file, read_text(file))
    node = find_node(url, user, authority)
    policy_set = node.policies()
    found = policy_set.version if if_version is None else if_version
    for policy in policies:
        policy_set = with_policy(policy_set, policy)
    print_version(node.replace(render_policy_set(policy_set), found), is_json=is_json)


def set_(  # noqa: PLR0913 (a parameter per option)
    name: Name,
    *,
    importance: Annotated[
        str | None, typer.Option(metavar="0-7", help="Importance; 3 is the default of all traffic.")
    ] = None,
    preferences: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A preset: `accord policy presets` lists them."),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help='Deadline, such as "5 s", or none.')
    ] = None,
    shaping: Annotated[str | None, typer.Option(metavar="NAME", help="A shaper, or none.")] = None,
    guarantee: Annotated[
        str | None,
        typer.Option(
            metavar="G", help="Guarantee of subscriptions: full, none, or a share such as 0.75."
        ),
    ] = None,
    precedence: Annotated[
        str | None, typer.Option(metavar="N", help="Precedence; the highest wins, 0 by default.")
    ] = None,
    operation: Annotated[
        Names, typer.Option(help="Operation: publish, subscribe or query; may be repeated.")
    ] = None,
    channel: Annotated[
        Names, typer.Option(metavar="FILTER", help="Channels, such as grid/#; may be repeated.")
    ] = None,
    client: Annotated[Names, typer.Option(help="A client's name, or a * pattern.")] = None,
    by_user: Annotated[Names, typer.Option("--by-user", help="A user's name.")] = None,
    group: Annotated[Names, typer.Option(help="A group of users.")] = None,
    who: Annotated[
        str | None,
        typer.Option(metavar="SELECTOR", help="Apply only to entities matching SELECTOR."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SELECTOR", help="Apply only to events matching SELECTOR.")
    ] = None,
    when: Annotated[
        str | None,
        typer.Option(metavar="SELECTOR", help="Apply only while resources match SELECTOR."),
    ] = None,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Change what is given of the policy NAME, or add it. An empty value removes a part."""
    from accord.cli.policy.edits import edited
    from accord.core.policy.policy_set import policy_document

    given: dict[str, object] = {
        "importance": importance,
        "preferences": preferences,
        "deadline": deadline,
        "shaping": shaping,
        "guarantee": guarantee,
        "precedence": precedence,
        "operation": operation,
        "channel": channel,
        "client": client,
        "user": by_user,
        "group": group,
        "who": who,
        "where": where,
        "when": when,
    }
    node = find_node(url, user, authority)
    policy_set = node.policies()
    policy = policy_set.policy(name)
    fields = edited({} if policy is None else policy_document(policy), given)
    print_version(node.put_policy(name, fields, policy_set.version), is_json=is_json)


def remove(  # noqa: PLR0913 (a parameter per option)
    name: Name,
    *,
    if_version: IfVersion = None,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Remove the policy NAME."""
    print_version(find_node(url, user, authority).remove_policy(name, if_version), is_json=is_json)


def strategy(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help='strict, "weighted fair", laxity or fifo; default: show.'
        ),
    ] = None,
    *,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show or switch how the node chooses what goes first."""
    node = find_node(url, user, authority)
    if name is None:
        typer.echo(node.policies().strategy)
    else:
        print_version(node.patch({"strategy": name}), is_json=is_json)


def shaping(
    is_on: Annotated[str | None, typer.Argument(metavar="on|off", help="Default: show.")] = None,
    *,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show or switch whether payloads are made smaller where policies say so."""
    from accord.cli.errors import InputError

    if is_on not in (None, "on", "off"):
        raise InputError("shaping", f"expected on or off, got {is_on!r}")
    node = find_node(url, user, authority)
    if is_on is None:
        typer.echo("on" if node.policies().shaping else "off")
    else:
        print_version(node.patch({"shaping": is_on == "on"}), is_json=is_json)


def limit(  # noqa: PLR0913 (a parameter per option)
    *,
    node_rate: Annotated[
        str | None,
        typer.Option(
            "--node", metavar="RATE", help="Limit of the node, such as 800kbit/s, or none."
        ),
    ] = None,
    each: Annotated[
        str | None, typer.Option(metavar="RATE", help="Limit of each client without its own.")
    ] = None,
    client: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="NAME RATE", help="Limit of one client."),
    ] = None,
    is_none: Annotated[bool, typer.Option("--none", help="Remove all limits.")] = False,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show or set bandwidth limits of the node and its clients."""
    from accord.cli.policy.edits import limit_settings
    from accord.cli.policy.text import limit_words

    node = find_node(url, user, authority)
    policy_set = node.policies()
    settings = limit_settings(policy_set, node_rate, each, client, is_none=is_none)
    if settings:
        print_version(node.patch(settings, policy_set.version), is_json=is_json)
    else:
        typer.echo(limit_words(policy_set))


def rollback(  # noqa: PLR0913 (a parameter per option)
    version: Annotated[int, typer.Argument(metavar="VERSION", min=0, show_default=False)],
    *,
    if_version: IfVersion = None,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Restore VERSION, as a new version."""
    print_version(find_node(url, user, authority).rollback(version, if_version), is_json=is_json)
