"""Explains which quality a client gets and why: a short text, and tables with details."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.text import Text

from accord.cli.policy.files import read_policies, read_text
from accord.cli.quantities import count_text
from accord.cli.screen import print_line, safe
from accord.cli.table import Table
from accord.core.policy.explain import Explanation, SettingDecision
from accord.runtime.policy_admin import ExplainRequest, PolicyAdmin, PolicyHost
from accord.runtime.policy_store import PolicyStore

MAX_UNMET: Final = 20

_VERBS: Final = {"publish": "publishes to", "subscribe": "receives", "query": "queries"}


def explain_offline(file: str, question: ExplainRequest) -> Explanation:
    """What a file would decide, if a node had it."""
    policy_set = read_policies(file, read_text(file))
    # Only the given resources are known, so conditions on others do not hold.
    around = PolicyHost(resources=lambda _: {})
    return PolicyAdmin(policy_set, PolicyStore(), around).explain(question)


def show_explanation(console: Console, explanation: Explanation) -> None:
    print_line(console, _headline(explanation))
    for sentence in _sentences(explanation):
        print_line(console, safe(sentence))
    _show_decisions(console, explanation)
    _show_overridden(console, explanation)
    _show_conditional(console, explanation)
    _show_unmet(console, explanation)


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


def _sentences(explanation: Explanation) -> list[str]:
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
    return [f"{late}; {shaped}{newer if replacement.value == 'on' else ''}."]


def _show_decisions(console: Console, explanation: Explanation) -> None:
    console.print()
    table = Table("setting", "value", "decided by", "why")
    for each in explanation.decisions:
        table.add_row(each.setting, each.value, each.policy or "default", each.reason)
    console.print(table)


def _show_overridden(console: Console, explanation: Explanation) -> None:
    table = Table("overridden", "setting", "said", "why it does not decide")
    for each in explanation.decisions:
        for other in each.overridden:
            table.add_row(other.policy, each.setting, other.value, other.reason)
    if table.rows:
        console.print()
        console.print(table)


def _show_conditional(console: Console, explanation: Explanation) -> None:
    table = Table("depends on the event", "where", "would decide")
    for each in explanation.conditional:
        decides = ", ".join(f"{name} {value}" for name, value in each.decides.items())
        table.add_row(each.policy, each.where, decides or "nothing")
    if table.rows:
        console.print()
        console.print(table)


def _show_unmet(console: Console, explanation: Explanation) -> None:
    table = Table("does not apply", "asks for", "but it is")
    for each in explanation.unmet[:MAX_UNMET]:
        table.add_row(each.policy, f"{each.condition} {each.asked}", each.found)
    if table.rows:
        console.print()
        console.print(table)
    if (more := explanation.unmet_count - len(table.rows)) > 0:
        print_line(console, f"… nor do {count_text(more, 'other')} (--json has more)")


def _decision(explanation: Explanation, setting: str) -> SettingDecision:
    return next(each for each in explanation.decisions if each.setting == setting)
