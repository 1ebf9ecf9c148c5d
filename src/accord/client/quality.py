"""Quality in the client API: expectations, capabilities, advice, usage.

    Expectation(rate=(5, 10), confidence=(75, 95), utility=3)
    Capability("rate", 1, 50, current=10, cost=Line(base=0, slope=0.1))

Either bound of an expectation may be None; a single value is the worst acceptable one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from accord.client.errors import QualityRefusedError, read_answer

Value = float | str
Bounds = Value | tuple[Value | None, Value | None]


class Expectation:
    """The needs of a subscription by property, and how much meeting them is worth (`utility`).

    Several expectations of one subscription are alternatives. One with `publishers` is met when
    that many publishers each meet it. Properties have the same names as in JSON, including those
    defined in addition to the standard ones: rate is in Hz, latency and freshness are in ms.
    """

    def __init__(  # noqa: PLR0913 - one for each property
        self,
        *,
        rate: Bounds | None = None,
        latency: Bounds | None = None,
        freshness: Bounds | None = None,
        confidence: Bounds | None = None,
        precision: Bounds | None = None,
        reliability: Bounds | None = None,
        trust: Bounds | None = None,
        order: Bounds | None = None,
        utility: float = 1.0,
        publishers: int = 1,
        id: str = "",  # noqa: A002 - as everywhere
        **more: Bounds,
    ) -> None:
        given: dict[str, Bounds | None] = {
            "rate": rate,
            "latency": latency,
            "freshness": freshness,
            "confidence": confidence,
            "precision": precision,
            "reliability": reliability,
            "trust": trust,
            "order": order,
            **more,
        }
        self.id = id
        self.utility = utility
        self.publishers = publishers
        self.bounds: dict[str, Bounds] = {
            name: each for name, each in given.items() if each is not None
        }
        if not self.bounds:
            raise ValueError("expected at least one property, such as rate=(5, 10)")

    @classmethod
    def of(
        cls,
        bounds: Mapping[str, Bounds],
        *,
        utility: float = 1.0,
        publishers: int = 1,
        id: str = "",  # noqa: A002
    ) -> Self:
        """Make an expectation from properties by name."""
        made = cls(rate=0, utility=utility, publishers=publishers, id=id)
        made.bounds = dict(bounds)
        if not made.bounds:
            raise ValueError("expected at least one property")
        return made

    def __repr__(self) -> str:
        given = [f"{name}={each!r}" for name, each in self.bounds.items()]
        return f"Expectation({', '.join(given)}, utility={self.utility:g})"

    def form(self, id_: str = "") -> dict[str, Any]:
        """The JSON form that nodes read."""
        form: dict[str, Any] = {"utility": self.utility, **self.bounds}
        if self.publishers != 1:
            form["publishers"] = self.publishers
        if self.id or id_:
            form["id"] = self.id or id_
        return form


@dataclass(frozen=True, slots=True)
class Line:
    """A cost that is linear in the value."""

    base: float
    slope: float


Cost = float | Line | Sequence[tuple[Value, float]]


@dataclass(frozen=True, slots=True)
class Capability:
    """The range a publisher can provide, where it operates now, and what a value costs there.

    A cost is a number, a `Line`, or pairs of (value, cost) between which it is interpolated.
    """

    property: str
    lower: Value
    upper: Value
    current: Value = field(kw_only=True)
    cost: Cost = field(default=0.0, kw_only=True)

    def form(self) -> dict[str, Any]:
        cost: Any = self.cost
        if isinstance(cost, Line):
            cost = {"base": cost.base, "slope": cost.slope}
        elif not isinstance(cost, (int, float)):
            cost = [list(pair) for pair in cost]
        return {"range": [self.lower, self.upper], "current": self.current, "cost": cost}


@dataclass(frozen=True, slots=True)
class Coupling:
    """Each unit by which `of` increases changes `on` by `per_unit`."""

    of: str
    on: str
    per_unit: float


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice to operate `property` at `target`; with `is_release`, less is enough now."""

    channel: str
    property: str
    target: Value
    is_release: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Number and total utility of the expectations that rely on a profile."""

    expectations: int = 0
    utility: float = 0.0


@dataclass(frozen=True, slots=True)
class ExpectationState:
    """State of an expectation: satisfied, satisfiable, unsatisfied, suspended or revoked.

    `decision` is what the node does about it; `reasons` has the present value of each property that
    falls short (None: there is none).
    """

    expectation: str
    state: str
    decision: str = ""
    reasons: Mapping[str, Value | None] = field(default_factory=dict)

    @property
    def is_satisfied(self) -> bool:
        return self.state == "satisfied"


class _Reason(msgspec.Struct):
    property: str
    now: Value | None = None


class _StateForm(msgspec.Struct):
    expectation: str
    state: str
    decision: str = ""
    reasons: list[_Reason] = []


class _AdviceForm(msgspec.Struct):
    kind: str
    channel: str = ""
    property: str = ""
    target: Value = 0.0
    release: bool = False
    expectations: int = 0
    utility: float = 0.0


def read_state(found: object) -> ExpectationState | None:
    """Decode a state; None if it is something else."""
    try:
        form = msgspec.convert(found, _StateForm)
    except msgspec.ValidationError:
        return None
    reasons = {each.property: each.now for each in form.reasons}
    return ExpectationState(form.expectation, form.state, form.decision, reasons)


def read_advice(found: object) -> tuple[str, Advice | Usage] | None:
    """Decode advice or usage, with its channel; None if it is something else."""
    try:
        form = msgspec.convert(found, _AdviceForm)
    except msgspec.ValidationError:
        return None
    if form.kind == "advice":
        return form.channel, Advice(form.channel, form.property, form.target, form.release)
    if form.kind == "usage":
        return form.channel, Usage(form.expectations, form.utility)
    return None


def read_expectation_form(text: str) -> Expectation:
    """Parse the JSON form that nodes read; only the node checks its meaning.

    Raises ValueError if it is not an expectation.
    """
    try:
        form = msgspec.json.decode(text)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(f'expected JSON such as {{"rate": [5, 10]}}: {error}') from None
    if not isinstance(form, dict):
        raise ValueError(f"expected an object, got {text[:40]}")
    utility, publishers, id_ = (form.pop(name, None) for name in ("utility", "publishers", "id"))
    if id_ is not None and not isinstance(id_, str):
        raise ValueError(f"id: expected a text, got {str(id_)[:40]}")
    made = Expectation.of(form)
    made.utility = 1.0 if utility is None else utility
    made.publishers = 1 if publishers is None else publishers
    made.id = "" if id_ is None else id_
    return made


def json_text(form: dict[str, Any]) -> str:
    return msgspec.json.encode(form).decode()


def read_json(payload: bytes) -> dict[str, Any]:
    """Decode a JSON object from a node; an empty one if it is not an object."""
    try:
        found = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def read_reply(payload: bytes) -> dict[str, Any]:
    """Decode a reply; raises QualityRefusedError if the node refused the request."""
    return read_answer(payload, dict, QualityRefusedError)
