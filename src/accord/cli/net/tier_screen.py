"""Parents and children in `accord net`: at a backbone node, and at a secondary one."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from accord.cli.net.text import time_text
from accord.cli.quantities import count_text
from accord.cli.screen import safe
from accord.cli.table import NOTHING, Table, figures
from accord.core.overlay.status import ChildStatus, ParentStatus, TierStatus

ACTIVE = Text("active", "green")
STANDBY = Text("standby")


def tier_words(tier: TierStatus) -> str:
    """Headline of a secondary node."""
    linked = sum(parent.is_linked for parent in tier.parents)
    parents = count_text(max(len(tier.parents), tier.configured), "parent")
    parts = [f"secondary node, {linked} of {parents} linked"]
    if tier.switches:
        parts.append(f"{count_text(tier.switches, 'change')} of the active one")
    if tier.waiting:
        parts.append(f"{count_text(tier.waiting, 'event')} not confirmed yet")
    return " · ".join(parts)


def draw_parents(parents: Sequence[ParentStatus]) -> Table:
    table = Table("parent", "state", *figures("delay", "waiting"), "lost")
    for parent in parents:
        table.add_row(
            parent.name,
            _role(parent),
            time_text(parent.latency_us) if parent.is_linked else NOTHING,
            f"{parent.waiting:,}" if parent.waiting else NOTHING,
            Text(f"{parent.lost:,}", "red") if parent.lost else Text(NOTHING),
        )
    return table


def draw_children(children: Sequence[ChildStatus]) -> Table:
    """The secondary nodes that have this node as a parent."""
    table = Table("child", "role", *figures("interests", "waiting"), "lost")
    for child in children:
        away = "" if child.is_linked else ", not linked"
        role = (ACTIVE if child.is_active else STANDBY).copy().append(away, "yellow")
        causes = [f"{count:,} {safe(cause)}" for cause, count in child.lost.items()]
        table.add_row(
            child.name,
            role,
            str(child.interests or NOTHING),
            f"{child.waiting:,}" if child.waiting else NOTHING,
            Text(", ".join(causes), "red") if causes else Text(NOTHING),
        )
    return table


def _role(parent: ParentStatus) -> Text:
    if not parent.is_linked:
        return Text("not linked", "red")
    if parent.is_active:
        return ACTIVE
    return STANDBY if parent.is_standby else Text("linked", "dim")
