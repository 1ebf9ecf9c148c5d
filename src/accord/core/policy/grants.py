"""Resolves the rules of publisher and receiver to the grant of a delivery."""

from __future__ import annotations

from typing import Final

from accord.core.model.units import DEFAULT_IMPORTANCE
from accord.core.policy.contexts import UNSET
from accord.core.policy.rules import Rule


class Grant:
    """The settings decided for one delivery; 0 and "" mean none.

    `policy` names the policy that decided the importance, or else the first that decided anything;
    deadline and shaping may be decided by others. `leaves_ms` affects shaping alone: an event that
    would take longer is made smaller, and is sent in any case. If `keeps_order`, no event of the
    channel may overtake another on its way to the receiver.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - made once, by position
        self,
        importance: int,
        deadline_ms: int,
        shaping: str,
        max_bytes: int,
        max_pixels: int,
        is_replacing: bool,
        policy: str,
        deadline_policy: str = "",
        shaping_policy: str = "",
        leaves_ms: int = 0,
        keeps_order: bool = False,
    ) -> None:
        self.importance: Final = importance
        self.deadline_ms: Final = deadline_ms
        self.shaping: Final = shaping
        self.max_bytes: Final = max_bytes
        self.max_pixels: Final = max_pixels
        self.is_replacing: Final = is_replacing
        self.policy: Final = policy
        self.deadline_policy: Final = deadline_policy
        self.shaping_policy: Final = shaping_policy
        self.leaves_ms: Final = leaves_ms
        self.keeps_order: Final = keeps_order

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grant):
            return False
        return (
            self.importance == other.importance
            and self.deadline_ms == other.deadline_ms
            and self.shaping == other.shaping
            and self.max_bytes == other.max_bytes
            and self.max_pixels == other.max_pixels
            and self.is_replacing == other.is_replacing
            and self.policy == other.policy
            and self.leaves_ms == other.leaves_ms
            and self.keeps_order == other.keeps_order
        )

    def __hash__(self) -> int:
        return hash((self.importance, self.deadline_ms, self.shaping, self.policy))

    def __repr__(self) -> str:
        return (
            f"Grant({self.importance}, deadline_ms={self.deadline_ms}, shaping={self.shaping!r}, "
            f"max_bytes={self.max_bytes}, max_pixels={self.max_pixels}, "
            f"is_replacing={self.is_replacing}, policy={self.policy!r})"
        )


DEFAULT_GRANT: Final = Grant(DEFAULT_IMPORTANCE, 0, "", 0, 0, True, "")


def make_ordered(grant: Grant, importance: int) -> Grant:
    """The grant on an ordered channel, where all events have that importance.

    Shaping and replacement are off: a shaped event would arrive after later ones, a replacing event
    before earlier ones.
    """
    policy, deadline_policy = grant.policy, grant.deadline_policy
    return Grant(
        importance, grant.deadline_ms, "", 0, 0, False, policy, deadline_policy, keeps_order=True
    )


class PolicySide:
    """Contribution of one operation of one entity on a channel.

    `mask` are the bits of the conditions on events that it depends on.
    """

    def __init__(self, number: int, rules: list[Rule]) -> None:
        self.number: Final = number
        self.rules: Final = rules
        mask = 0
        for rule in rules:
            mask |= rule.where
        self.mask: Final = mask


NO_SIDE: Final = PolicySide(0, [])


def drop_overridden(rules: list[Rule]) -> list[Rule]:
    """Drops rules whose settings are all decided by earlier ones, whatever the event."""
    kept: list[Rule] = []
    decided = 0
    for rule in rules:
        if rule.settings & ~decided:
            kept.append(rule)
            if not rule.where:
                decided |= rule.settings
    return kept


def merge_rules(left: list[Rule], right: list[Rule]) -> list[Rule]:
    """Merges both lists by rank."""
    if not left or not right:
        return left or right
    by_rank: dict[int, Rule] = {rule.rank: rule for rule in left}
    for rule in right:
        by_rank[rule.rank] = rule
    return [by_rank[rank] for rank in sorted(by_rank)]


def decide(rules: list[Rule], matching: int) -> Grant:
    """Takes each setting from the first rule that decides it."""
    importance = deadline_ms = replacement = UNSET
    shaping: str | None = None
    max_bytes = max_pixels = 0
    policy = first = deadline_policy = shaping_policy = ""
    for rule in rules:
        if rule.where and not rule.where & matching:
            continue
        context = rule.context
        is_deciding = False
        if importance == UNSET and context.importance != UNSET:
            importance = context.importance
            policy = context.name
            is_deciding = True
        if deadline_ms == UNSET and context.deadline_ms != UNSET:
            deadline_ms = context.deadline_ms
            deadline_policy = context.name
            is_deciding = True
        if shaping is None and context.shaping is not None:
            shaping = context.shaping
            shaping_policy = context.name
            max_bytes = context.max_bytes
            max_pixels = context.max_pixels
            is_deciding = True
        if replacement == UNSET and context.replacement != UNSET:
            replacement = context.replacement
            is_deciding = True
        if is_deciding and not first:
            first = context.name
    if not first:
        return DEFAULT_GRANT
    return Grant(
        DEFAULT_IMPORTANCE if importance == UNSET else importance,
        max(deadline_ms, 0),
        shaping or "",
        max_bytes,
        max_pixels,
        replacement != 0,
        policy or first,
        deadline_policy,
        shaping_policy,
    )
