"""`accord policy …`: view, change and explain the policies of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec
import typer

from accord.cli.arguments import read_pairs
from accord.cli.http_client import NodeHttpClient
from accord.cli.options import (
    CommandGroup,
    IsJson,
    Output,
    complete_channels,
    complete_policies,
    print_answer,
)
from accord.cli.parameters import argument, flag, option, shared
from accord.cli.policy_text import (
    draw_dry_run,
    draw_explanation,
    draw_history,
    draw_policy_set,
    draw_presets,
    explanation_text,
)
from accord.client.http import CHANGE_S
from accord.config.policy_files import policy_json, policy_toml, read_policies, read_some, read_text
from accord.core.model.errors import InputError, PolicyError
from accord.core.model.values import infer
from accord.core.policy.document_fields import NOTHING
from accord.core.policy.explain import Explanation
from accord.core.policy.policy_set import (
    PolicySet,
    policy_document,
    policy_set_from,
    render_policy_set,
    with_policy,
    write_json,
    write_toml,
)
from accord.core.policy.policy_words import limit_words
from accord.core.policy.preferences import PRESETS
from accord.operations.operation import Request
from accord.operations.policies import (
    Changed,
    DryRunPolicies,
    Explain,
    GetPolicies,
    GetPolicyHistory,
    PatchPolicies,
    PutPolicies,
    PutPolicy,
    RemovePolicy,
    Rollback,
)
from accord.runtime.policy_admin import PolicyAdmin, PolicyHost
from accord.runtime.policy_store import PolicyStore
from accord.terminal.screen import open_console, print_line, safe

Name = Annotated[
    str, argument("NAME", "A policy's name", show_default=False, autocompletion=complete_policies)
]
File = Annotated[str, argument("FILE", "TOML (or .json); - for stdin")]
IfVersion = Annotated[
    int | None, shared("N", "Change only if N is still the current version.", "--if-version", min=0)
]
Names = list[str] | None

_INTEGERS: Final = ("importance", "precedence")
_PREFERENCES: Final = ("deadline", "shaping")

app = CommandGroup()


@app.command("list")
def list_(*, output: Output, node: NodeHttpClient) -> None:
    """Show strategy, limits and all policies in a table."""
    output.show(
        lambda: _policies(node),
        draw_policy_set,
        lambda found: (msgspec.Raw(write_json(found).encode()),),
    )


@app.command("show")
def show(
    name: str | None = argument(
        "NAME",
        "A policy's name; default: all.",
        show_default=False,
        autocompletion=complete_policies,
        default=None,
    ),
    *,
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Print everything, or the policy NAME, in the format of a file."""
    if name is None:
        typer.echo(write_json(_policies(node)) if is_json else _toml(node).rstrip())
        return
    policy = _policies(node).policy(name)
    if policy is None:
        raise InputError("NAME", f"there is no policy {name!r}; `accord policy list` shows them")
    typer.echo(policy_json(policy) if is_json else policy_toml(policy))


@app.command("explain")
def explain(
    *,
    channel: str = option(
        "CHANNEL", "A channel, not a filter.", autocompletion=complete_channels, default=...
    ),
    operation: str = option("NAME", "publish, subscribe or query.", default="subscribe"),
    client: str = option("NAME", "The client's name.", default=""),
    by_user: str | None = option(
        "NAME", "User of the client; default: as it is connected.", "--by-user"
    ),
    group: Names = option("NAME", "A group of that user; may be repeated."),
    publisher: str = option("NAME", "Client that publishes, for deliveries.", default=""),
    attribute: Names = option("NAME=VALUE", "Attribute of the event; may be repeated."),
    payload_bytes: int | None = option("BYTES", "Payload size of the event.", min=0),
    resource: Names = option("NAME=NUMBER", "Assumed value of a resource; with --file only."),
    file: str | None = option("FILE", "Explain by this file instead of a node."),
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Show which policies decide, and why others do not."""
    question = Explain(
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
        explanation = _explain_offline(file, question)
    elif resource is not None:
        raise typer.BadParameter("give --file too: a node knows its own resources")
    else:
        explanation = node.call(question)
    if not is_json:
        for line in explanation_text(explanation):
            print_line(open_console(), line)
    print_answer(explanation, draw_explanation, is_json=is_json)


@app.command("history")
def history(*, output: Output, node: NodeHttpClient) -> None:
    """Show who changed what, and which versions can be restored."""
    output.show(
        lambda: node.call(GetPolicyHistory()).history,
        draw_history,
        lambda found: found,
    )


@app.command("check")
def check(file: File) -> None:
    """Say whether FILE could be applied, without a node."""
    typer.echo(f"{file}: good, {_count(read_policies(file, read_text(file)).policies)}")


@app.command("presets")
def presets(*, output: Output) -> None:
    """Show the preferences that have names."""
    output.show(
        lambda: PRESETS,
        draw_presets,
        lambda found: [{"name": name, **msgspec.to_builtins(each)} for name, each in found.items()],
    )


@app.command("apply")
def apply(
    file: File,
    *,
    is_dry: bool = flag("Only show what would change.", "--dry-run"),
    if_version: IfVersion = None,
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Replace all policies, limits and the strategy by those in FILE."""
    wanted = read_policies(file, read_text(file))
    toml = render_policy_set(wanted)
    if not is_dry:
        done = f"{_count(wanted.policies)}; strategy {wanted.strategy}"
        _change(node, PutPolicies(toml=toml, if_version=if_version), done, is_json=is_json)
        return
    print_answer(node.call(DryRunPolicies(toml=toml), CHANGE_S), draw_dry_run, is_json=is_json)


@app.command("put")
def put(
    file: File,
    *,
    if_version: IfVersion = None,
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Add the policies in FILE, or replace those of the same names; the rest stays."""
    policies = read_some(file, read_text(file))
    policy_set = _policies(node)
    found = policy_set.version if if_version is None else if_version
    for policy in policies:
        policy_set = with_policy(policy_set, policy)
    wanted = PutPolicies(toml=render_policy_set(policy_set), if_version=found)
    _change(node, wanted, f"{_count(policies)} put", is_json=is_json)


@app.command("set")
def set_(
    name: Name,
    *,
    importance: str | None = option(
        "0-7", "Importance: 7 is the highest; 3 is the default of all traffic."
    ),
    preferences: str | None = option("NAME", "A preset: `accord policy presets` lists them."),
    deadline: str | None = option("TIME", 'Deadline, such as "5 s", or none.'),
    shaping: str | None = option("NAME", "A shaper, or none."),
    guarantee: str | None = option(
        "G", "Guarantee of subscriptions: full, none, or a share such as 0.75."
    ),
    precedence: str | None = option("N", "Precedence; the highest wins, 0 by default."),
    operation: Names = option("NAME", "Operation: publish, subscribe or query; may be repeated."),
    channel: Names = option("FILTER", "Channels, such as grid/#; may be repeated."),
    client: Names = option("NAME", "A client's name, or a * pattern."),
    by_user: Names = option("NAME", "A user's name.", "--by-user"),
    group: Names = option("NAME", "A group of users."),
    who: str | None = option("SELECTOR", "Apply only to entities matching SELECTOR."),
    where: str | None = option("SELECTOR", "Apply only to events matching SELECTOR."),
    when: str | None = option("SELECTOR", "Apply only while resources match SELECTOR."),
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Change what is given of the policy NAME, or add it. An empty value removes a part."""
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
    policy_set = _policies(node)
    policy = policy_set.policy(name)
    fields = edited({} if policy is None else policy_document(policy), given)
    wanted = PutPolicy(name=name, policy=fields, if_version=policy_set.version)
    done = f"{name}: {'added' if policy is None else 'changed'}"
    _change(node, wanted, done, is_json=is_json)


@app.command("remove")
def remove(
    name: Name,
    *,
    if_version: IfVersion = None,
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Remove the policy NAME."""
    _change(
        node, RemovePolicy(name=name, if_version=if_version), f"{name}: removed", is_json=is_json
    )


@app.command("strategy")
def strategy(
    name: str | None = argument(
        "NAME", 'strict, "weighted fair", laxity or fifo; default: show.', default=None
    ),
    *,
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Show or switch how the node chooses what goes first.

    strict: always the most important.
    weighted fair: shares by weight; nothing waits for ever.
    laxity: the least time left until its deadline.
    fifo: the order of arrival.
    """
    if name is None:
        typer.echo(_policies(node).strategy)
    else:
        done = f"strategy: {name}"
        _change(node, PatchPolicies(settings={"strategy": name}), done, is_json=is_json)


@app.command("shaping")
def shaping(
    is_on: str | None = argument("on|off", "Default: show.", default=None),
    *,
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Show or switch whether payloads are made smaller where policies say so."""
    if is_on not in (None, "on", "off"):
        raise InputError("shaping", f"expected on or off, got {is_on!r}")
    if is_on is None:
        typer.echo("on" if _policies(node).shaping else "off")
    else:
        wanted = PatchPolicies(settings={"shaping": is_on == "on"})
        _change(node, wanted, f"shaping: {is_on}", is_json=is_json)


@app.command("limit")
def limit(
    *,
    node_rate: str | None = option(
        "RATE", "Limit of the node, such as 800kbit/s, or none.", "--node"
    ),
    each: str | None = option("RATE", "Limit of each client without its own, or none."),
    client: tuple[str, str] | None = option("NAME RATE", "Limit of one client, or none."),
    is_none: bool = flag("Remove all limits: of the node and of all clients.", "--none"),
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Show or set bandwidth limits of the node and its clients."""
    policy_set = _policies(node)
    settings = limit_settings(policy_set, node_rate, each, client, is_none=is_none)
    if not settings:
        typer.echo(limit_words(policy_set))
        return
    version = node.call(PatchPolicies(settings=settings, if_version=policy_set.version)).version
    _print_version(f"limits: {limit_words(_policies(node))}", version, is_json=is_json)


@app.command("rollback")
def rollback(
    version: int | None = argument(
        "VERSION",
        "The version to restore: policies, limits and strategy; default: that before the last "
        "change. `accord policy history` lists them.",
        min=1,
        show_default=False,
        default=None,
    ),
    *,
    if_version: IfVersion = None,
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Restore an earlier version, as a new version."""
    if version is None:
        version, if_version = _before_last(node, if_version)
    wanted = Rollback(version=version, if_version=if_version)
    _change(node, wanted, f"back to version {version}", is_json=is_json)


def _before_last(node: NodeHttpClient, if_version: int | None) -> tuple[int, int]:
    """The version before the current one, and the current one unless another is named."""
    versions = node.call(GetPolicyHistory()).history
    if len(versions) < 2:
        raise InputError("VERSION", "there is no version before the last change")
    return versions[1].version, versions[0].version if if_version is None else if_version


def _policies(node: NodeHttpClient) -> PolicySet:
    document = node.call(GetPolicies(), CHANGE_S).policy_set
    try:
        return policy_set_from(document)
    except PolicyError as error:
        raise node.decode_error(error) from None


def _toml(node: NodeHttpClient) -> str:
    return write_toml(node.call(GetPolicies(), CHANGE_S).policy_set)


def _explain_offline(file: str, question: Explain) -> Explanation:
    """What a file would decide, if a node had it."""
    policy_set = read_policies(file, read_text(file))
    # Only the given resources are known, so conditions on others do not hold.
    around = PolicyHost(resources=lambda _: {})
    return PolicyAdmin(policy_set, PolicyStore(), around).explain(question)


def _change(node: NodeHttpClient, wanted: Request[Changed], done: str, *, is_json: bool) -> None:
    _print_version(done, node.call(wanted).version, is_json=is_json)


def _print_version(done: str, version: int, *, is_json: bool) -> None:
    if is_json:
        typer.echo(f'{{"version":{version}}}')
    else:
        typer.echo(f"{safe(done)} (policies version {version})")


def _count(policies: Sequence[object]) -> str:
    return f"{len(policies):,} {'policy' if len(policies) == 1 else 'policies'}"


def edited(fields: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """A policy's fields with the given changes; an empty value removes a field."""
    result = dict(fields)
    wanted = {name: value for name, value in given.items() if value is not None}
    for name, value in wanted.items():
        if name in _PREFERENCES:
            result["preferences"] = _preferred(result.get("preferences"), name, str(value))
        elif value in ("", [""]):
            result.pop(name, None)
        elif name in _INTEGERS:
            result[name] = _integer(name, str(value))
        elif name == "guarantee":
            result[name] = infer(str(value))  # a share is a number; the node checks everything else
        else:
            result[name] = value
    if not result.get("preferences", True):
        del result["preferences"]
    return result


def limit_settings(
    policy_set: PolicySet,
    node: str | None,
    each: str | None,
    client: tuple[str, str] | None,
    *,
    is_none: bool,
) -> dict[str, object]:
    """The settings that change; empty if nothing is given."""
    settings: dict[str, object] = {}
    if is_none:
        settings = {"bandwidth": None, "client_bandwidth": None, "limits": []}
    if node is not None:
        settings["bandwidth"] = read_rate(node)
    if each is not None:
        settings["client_bandwidth"] = read_rate(each)
    if client is not None:
        name, rate = client
        if rate == NOTHING and not any(old.client == name for old in policy_set.limits):
            raise InputError("--client", f"{name!r} has no limit of its own")
        kept = () if is_none else (old for old in policy_set.limits if old.client != name)
        limits = [{"client": old.client, "bandwidth": old.bandwidth_bps} for old in kept]
        new = [] if rate == NOTHING else [{"client": name, "bandwidth": read_rate(rate)}]
        settings["limits"] = [*limits, *new]
    return settings


def read_rate(rate: str) -> str | int:
    """As in a policy set: a plain number is in bits per second."""
    return int(rate) if rate.isascii() and rate.isdigit() and len(rate) < 16 else rate


def read_resources(texts: Iterable[str]) -> dict[str, int | float]:
    found: dict[str, int | float] = {}
    for name, text in read_pairs(texts, "--resource"):
        value = infer(text)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError("--resource", f"expected a number for {name}, got {text!r}")
        found[name] = value
    return found


def _preferred(preferences: object, name: str, value: str) -> dict[str, object]:
    """The preferences as a table; a preset can't be edited."""
    if isinstance(preferences, str):
        problem = f"expected --preferences '' beside it, as {preferences} decides that"
        raise InputError(f"--{name}", problem)
    table: dict[str, object] = dict(preferences) if isinstance(preferences, dict) else {}
    if value:
        table[name] = value
    else:
        table.pop(name, None)
    return table


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--{name}", f"expected an integer, got {text!r}") from None
