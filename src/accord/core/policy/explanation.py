"""Values of an explanation, serialised to JSON as they are."""

from __future__ import annotations

from msgspec import Struct

from accord.core.policy.applicability import UnmetCondition


class Specificity(Struct, frozen=True):
    """Specificity of a context; the first number that differs counts. See `contexts`."""

    conditions: int
    exact: int
    lists: int
    levels: int


class ApplicablePolicy(Struct, frozen=True, kw_only=True):
    """A policy that applies: to which operation, and which settings it decides."""

    policy: str
    operation: str
    precedence: int
    specificity: Specificity
    decides: tuple[str, ...]


class Conditional(Struct, frozen=True, kw_only=True):
    """A policy that applies to events that meet its `where`, and what it then decides."""

    policy: str
    operation: str
    where: str
    precedence: int
    specificity: Specificity
    decides: dict[str, str]


class Overridden(Struct, frozen=True, kw_only=True):
    """A policy that could have decided; `rule` is precedence, specificity or order."""

    policy: str
    value: str
    rule: str
    reason: str


class SettingDecision(Struct, frozen=True, kw_only=True):
    """One setting: its value, the policy that decided ("" for the default), and why that one."""

    setting: str
    value: str
    policy: str
    reason: str
    overridden: tuple[Overridden, ...]


class GrantedSettings(Struct, frozen=True, kw_only=True):
    """The decisions as numbers; 0 and "" mean none."""

    importance: int
    deadline_ms: int
    shaping: str
    max_bytes: int
    max_pixels: int
    is_replacing: bool
    policy: str


class Explanation(Struct, frozen=True, kw_only=True):
    """An explanation; `unmet` lists the policies closest to applying first, of `unmet_count`."""

    version: int
    operation: str
    channel: str
    client: str
    user: str
    groups: tuple[str, ...]
    node: str
    publisher: str
    granted: GrantedSettings
    decisions: tuple[SettingDecision, ...]
    applying: tuple[ApplicablePolicy, ...]
    conditional: tuple[Conditional, ...]
    unmet: tuple[UnmetCondition, ...]
    unmet_count: int
