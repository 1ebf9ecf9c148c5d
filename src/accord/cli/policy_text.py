"""Policies as text: when they apply, what they grant, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from accord.core.model.units import DEFAULT_IMPORTANCE
from accord.core.policy.dry_run import Affected
from accord.core.policy.explain import Explanation, SettingDecision
from accord.core.policy.policy_set import PolicySet
from accord.core.policy.policy_words import (
    context_words,
    effect_words,
    limit_words,
    preference_words,
)
from accord.core.policy.preferences import Preferences
from accord.operations.policies import DryRun, Version
from accord.terminal.amounts import count_text, moment_text
from accord.terminal.rows import Column, fields, section, table
from accord.terminal.screen import safe

SHOWN: Final = 500
MAX_UNMET: Final = 20

_VERBS: Final = {"publish": "publishes to", "subscribe": "receives", "query": "queries"}


def _or_default(policy: str) -> str:
    return policy or "default"


def _decided(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "nothing"


def _changes(each: Affected) -> str:
    changes = [f"{it.setting} {it.before} → {it.after}" for it in each.changes]
    return "; ".join([*changes, "more, by event"] if each.has_other_conditions else changes)


class PolicyRow(msgspec.Struct, frozen=True):
    name: Annotated[str, Column("policy")]
    precedence: Annotated[int, Column(unit=str)]
    applies_to: Annotated[str, Column(of=context_words)]
    gives: Annotated[str, Column(of=effect_words)]


class VersionRow(msgspec.Struct, frozen=True):
    version: Annotated[int, Column(unit=str)]
    changed_ms: Annotated[int, Column("changed", moment_text, is_whole=True)]
    who: Annotated[str, Column("by")]
    what: str


class AffectedRow(msgspec.Struct, frozen=True):
    client: str
    operation: str
    channel: str
    change: Annotated[str, Column(of=_changes)]
    policy_after: Annotated[str, Column("by", _or_default)]


class PresetRow(msgspec.Struct, frozen=True):
    preferences: str
    mean: str


class DecisionRow(msgspec.Struct, frozen=True):
    setting: str
    value: str
    policy: Annotated[str, Column("decided by", _or_default)]
    reason: Annotated[str, Column("why")]


class OverriddenRow(msgspec.Struct, frozen=True):
    overridden: str
    setting: str
    said: str
    why_it_does_not_decide: str


class ConditionalRow(msgspec.Struct, frozen=True):
    policy: Annotated[str, Column("depends on the event")]
    where: str
    decides: Annotated[dict[str, str], Column("would decide", _decided)]


class UnmetRow(msgspec.Struct, frozen=True):
    policy: Annotated[str, Column("does not apply")]
    asks_for: Annotated[str, Column(of=lambda each: f"{each.condition} {each.asked}")]
    found: Annotated[str, Column("but it is")]


def draw_policy_set(policy_set: PolicySet) -> Group:
    """Overview; policies in order of evaluation."""
    facts = [
        ("version", str(policy_set.version)),
        ("strategy", policy_set.strategy),
        ("weights", " ".join(map(str, policy_set.weights))),
        ("shaping", "on" if policy_set.shaping else "off"),
        ("limits", limit_words(policy_set)),
        ("otherwise", f"importance {DEFAULT_IMPORTANCE}, no deadline, no shaping"),
    ]
    parts: list[RenderableType] = [fields(facts), Text()]
    if not policy_set.policies:
        return Group(*parts, Text("no policies: everything is equally important"))
    # A stable sort: the order in the file decides between equals.
    ordered = sorted(policy_set.policies, key=lambda policy: -policy.precedence)
    return Group(*parts, *section(table(PolicyRow, ordered[:SHOWN]), len(ordered))[1:])


def draw_history(versions: Sequence[Version]) -> RenderableType:
    if not versions:
        return Text("no changes yet")
    return table(VersionRow, versions)


def draw_dry_run(result: DryRun) -> Group:
    """Which clients would be treated differently, and how."""
    noun = (
        "open publisher, subscription or query"
        if result.checked == 1
        else "open publishers, subscriptions and queries"
    )
    said = Text(f"{result.total:,} of {result.checked:,} {noun} would be affected")
    affected = table(AffectedRow, result.affected[:SHOWN])
    return Group(said, *section(affected, result.total))


def draw_presets(presets: Mapping[str, Preferences]) -> Group:
    rows = (PresetRow(name, ", ".join(preference_words(each))) for name, each in presets.items())
    remark = Text("what a preset does not mention is left to other policies", "dim")
    return Group(table(PresetRow, rows), remark)


def explanation_text(found: Explanation) -> list[Text]:
    """Which quality a client gets, and why; on a line each wherever that is not a terminal."""
    return [_headline(found), Text(safe(_sentence(found)))]


def draw_explanation(found: Explanation) -> Group:
    """What decides each setting, and what does not."""
    overridden = [
        OverriddenRow(other.policy, each.setting, other.value, other.reason)
        for each in found.decisions
        for other in each.overridden
    ]
    unmet = found.unmet[:MAX_UNMET]
    parts: list[RenderableType] = []
    for drawn in (
        table(DecisionRow, found.decisions),
        table(OverriddenRow, overridden),
        table(ConditionalRow, found.conditional),
        table(UnmetRow, unmet),
    ):
        if drawn.rows:
            parts += [Text(), drawn]
    if (more := found.unmet_count - len(unmet)) > 0:
        parts.append(Text(f"… nor do {count_text(more, 'other')} (--json has more)"))
    return Group(*parts)


def _headline(explanation: Explanation) -> Text:
    importance = _decision(explanation, "importance")
    parts: list[str | tuple[str, str]] = [
        safe(f"{_who(explanation)} {_VERBS[explanation.operation]} {explanation.channel}"),
        safe(f" from {explanation.publisher}" if explanation.publisher else ""),
        " with ",
        (f"importance {importance.value}", "bold"),
    ]
    if importance.policy:
        parts += [", because ", (safe(importance.policy), "bold"), " says so: "]
    else:
        parts.append(": ")
    parts.append(safe(f"{importance.reason}."))
    return Text.assemble(*parts)


def _who(explanation: Explanation) -> str:
    name = explanation.client or "a client"
    about = []
    if explanation.user:
        about.append(f"user {explanation.user}")
    if explanation.groups:
        word = "group" if len(explanation.groups) == 1 else "groups"
        about.append(f"{word} {', '.join(explanation.groups)}")
    return f"{name} ({', '.join(about)})" if about else name


def _sentence(explanation: Explanation) -> str:
    deadline = _decision(explanation, "deadline")
    shaping = _decision(explanation, "shaping")
    replacement = _decision(explanation, "replacement")
    late = (
        f"What can't arrive within {deadline.value} is dropped"
        if deadline.value != "none"
        else "Nothing is dropped for being late"
    )
    shaped = (
        "payloads stay as they are"
        if shaping.value == "none"
        else f"payloads are made smaller where that helps ({shaping.value})"
    )
    newer = "; what is newer replaces what waits under the same key"
    return f"{late}; {shaped}{newer if replacement.value == 'on' else ''}."


def _decision(explanation: Explanation, setting: str) -> SettingDecision:
    return next(each for each in explanation.decisions if each.setting == setting)
