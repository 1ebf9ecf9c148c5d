"""Output of policies."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from accord.cli.policy.text import (
    context_words,
    effect_words,
    limit_words,
    preference_words,
)
from accord.cli.screen import print_line
from accord.cli.table import Table, fields, figures, whole
from accord.core.model.units import DEFAULT_IMPORTANCE
from accord.core.policy.policy_set import PolicySet
from accord.core.policy.preferences import PRESETS
from accord.runtime.policy_admin import DryRun
from accord.runtime.policy_store import Version

SHOWN: Final = 500


def show_policy_set(console: Console, policy_set: PolicySet) -> None:
    """Overview; policies in order of evaluation."""
    facts = [
        ("version", str(policy_set.version)),
        ("strategy", policy_set.strategy),
        ("weights", " ".join(map(str, policy_set.weights))),
        ("shaping", "on" if policy_set.shaping else "off"),
        ("limits", limit_words(policy_set)),
        ("otherwise", f"importance {DEFAULT_IMPORTANCE}, no deadline, no shaping"),
    ]
    console.print(fields(facts))
    console.print()
    if not policy_set.policies:
        print_line(console, "no policies: everything is equally important")
        return
    table = Table("policy", *figures("precedence"), "applies to", "gives")
    # A stable sort: the order in the file decides between equals.
    ordered = sorted(policy_set.policies, key=lambda policy: -policy.precedence)
    for policy in ordered[:SHOWN]:
        applies, gives = context_words(policy), effect_words(policy)
        table.add_row(policy.name, str(policy.precedence), applies, gives)
    console.print(table)
    if len(ordered) > SHOWN:
        print_line(console, f"… and {len(ordered) - SHOWN:,} more")


def show_history(console: Console, versions: Iterable[Version]) -> None:
    table = Table(*figures("version"), whole("changed"), "by", "what")
    for version in versions:
        changed = datetime.fromtimestamp(version.changed_ms / 1000, UTC).astimezone()
        moment = f"{changed:%Y-%m-%d %H:%M:%S}"
        table.add_row(str(version.version), moment, version.who, version.what)
    if table.rows:
        console.print(table)
    else:
        print_line(console, "no changes yet")


def show_dry_run(console: Console, result: DryRun) -> None:
    """Which clients would be treated differently, and how."""
    noun = (
        "open publisher, subscription or query"
        if result.checked == 1
        else ("open publishers, subscriptions and queries")
    )
    print_line(console, f"{result.total:,} of {result.checked:,} {noun} would be affected")
    if not result.affected:
        return
    console.print()
    table = Table("client", "operation", "channel", "change", "by")
    for each in result.affected[:SHOWN]:
        changes = [f"{it.setting} {it.before} → {it.after}" for it in each.changes]
        if each.has_other_conditions:
            changes.append("more, by event")
        by = each.policy_after or "default"
        table.add_row(each.client, each.operation, each.channel, "; ".join(changes), by)
    console.print(table)
    if result.total > SHOWN:
        print_line(console, f"… and {result.total - SHOWN:,} more")


def show_presets(console: Console) -> None:
    table = Table("preferences", "mean")
    for name, preferences in PRESETS.items():
        table.add_row(name, ", ".join(preference_words(preferences)))
    console.print(table)
    print_line(console, Text("what a preset does not mention is left to other policies", "dim"))
