"""JSON forms of expectations, capabilities and quality notices, as clients send and receive them.

An expectation is an object with a member per property and optional `utility`, `publishers`, `id`:

    {"rate": [5, 10], "confidence": [75, null], "trust": "high", "utility": 3}

A pair holds the bounds (null: none); a single value is the worst sufficient one. Capabilities are
also an object with a member per property:

    {"rate": {"range": [1, 50], "current": 10, "cost": {"base": 0, "slope": 0.1}}}

A cost is a number, a line (`base`, `slope`), or a table of (value, cost) pairs.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from accord.core.quality.costs import FREE, ConstantCost, Cost, LinearCost, TableCost
from accord.core.quality.expectations import PropertyRequirement
from accord.core.quality.messages import AdaptationDecision, Advice, StateChanged, UsageChanged
from accord.core.quality.profiles import Capability, Coupling
from accord.core.quality.properties import Better, PropertyRegistry, QualityError, Value, shown

MAX_TEXT: Final = 16_384
MAX_OWN_ID: Final = 200
UTILITY: Final = "utility"
PUBLISHERS: Final = "publishers"
ID: Final = "id"

Json = dict[str, Any]


class ExpectationForm(msgspec.Struct, frozen=True, kw_only=True):
    """An expectation as a client sends it; without an ID one is assigned."""

    requirements: tuple[PropertyRequirement, ...]
    utility: float = 1.0
    publishers: int = 1
    id: str = ""


def read_json(text: str | bytes, place: str) -> Json:
    if len(text) > MAX_TEXT:
        raise QualityError(place, f"expected at most {MAX_TEXT} characters, got {len(text)}")
    try:
        found = msgspec.json.decode(text)
    except RecursionError:
        raise QualityError(place, "JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise QualityError(place, f"expected JSON: {error}") from None
    return expect_object(found, place)


def expect_object(found: object, place: str) -> Json:
    if not isinstance(found, dict):
        raise QualityError(place, f"expected an object, got {shown(found)}")
    return found


# Expectations


def parse_expectation(
    found: Json, registry: PropertyRegistry, place: str = "expect"
) -> ExpectationForm:
    """Raises QualityError with the problem and its location."""
    own = found.get(ID, "")
    if not isinstance(own, str) or len(own) > MAX_OWN_ID or not own.isprintable():
        problem = f"expected at most {MAX_OWN_ID} printable characters, got {shown(own)}"
        raise QualityError(f"{place}.{ID}", problem)
    publishers = found.get(PUBLISHERS, 1)
    if isinstance(publishers, bool) or not isinstance(publishers, int):
        problem = f"expected an integer, got {shown(publishers)}"
        raise QualityError(f"{place}.{PUBLISHERS}", problem)
    requirements = tuple(
        _requirement(name, value, registry, f"{place}.{name}")
        for name, value in found.items()
        if name not in (ID, PUBLISHERS, UTILITY)
    )
    if not requirements:
        expected = 'expected at least one property, such as {"rate": [5, 10]}'
        raise QualityError(place, expected)
    return ExpectationForm(
        requirements=requirements,
        utility=_number(found.get(UTILITY, 1.0), f"{place}.{UTILITY}"),
        publishers=publishers,
        id=own,
    )


def render_expectation(expectation: ExpectationForm) -> Json:
    """Renders JSON that parses to an equal form."""
    form: Json = {each.property: [each.lower, each.upper] for each in expectation.requirements}
    form[UTILITY] = expectation.utility
    if expectation.publishers != 1:
        form[PUBLISHERS] = expectation.publishers
    if expectation.id:
        form[ID] = expectation.id
    return form


def _requirement(
    name: str, value: object, registry: PropertyRegistry, place: str
) -> PropertyRequirement:
    property_ = registry.get(name)
    if isinstance(value, list):
        if len(value) != 2:
            raise QualityError(place, f"expected [lower, upper], got {shown(value)}")
        lower, upper = (
            None if each is None else _value(each, f"{place}[{number}]")
            for number, each in enumerate(value)
        )
        return PropertyRequirement(name, lower, upper)
    worst = _value(value, place)
    if property_.better is Better.HIGHER:
        return PropertyRequirement(name, worst, None)
    return PropertyRequirement(name, None, worst)


# Capabilities


def read_capabilities(found: Json, place: str = "capabilities") -> tuple[Capability, ...]:
    return tuple(_capability(name, value, f"{place}.{name}") for name, value in found.items())


def capabilities_form(capabilities: tuple[Capability, ...]) -> Json:
    form: Json = {}
    for each in capabilities:
        form[each.property] = {"range": [each.lower, each.upper], "current": each.current}
        if each.cost != FREE:
            form[each.property]["cost"] = cost_form(each.cost)
    return form


def read_couplings(found: object, place: str = "couplings") -> tuple[Coupling, ...]:
    """Parses a list of objects with `of`, `on` and `per_unit`."""
    if not isinstance(found, list):
        raise QualityError(place, f"expected a list, got {shown(found)}")
    couplings: list[Coupling] = []
    for number, each in enumerate(found):
        where = f"{place}[{number}]"
        fields = expect_object(each, where)
        _check_members(fields, ("of", "on", "per_unit"), where)
        of, on = fields.get("of"), fields.get("on")
        if not isinstance(of, str) or not isinstance(on, str):
            raise QualityError(where, "of, on: expected two properties")
        per_unit = _number(fields.get("per_unit"), f"{where}.per_unit")
        couplings.append(Coupling(of, on, per_unit))
    return tuple(couplings)


def _capability(name: str, found: object, place: str) -> Capability:
    fields = expect_object(found, place)
    _check_members(fields, ("range", "current", "cost"), place)
    bounds = fields.get("range")
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise QualityError(f"{place}.range", f"expected [lower, upper], got {shown(bounds)}")
    lower, upper = (_value(each, f"{place}.range") for each in bounds)
    current = _value(fields.get("current"), f"{place}.current")
    cost = read_cost(fields.get("cost", 0), f"{place}.cost")
    return Capability(name, lower, upper, current, cost)


def read_cost(found: object, place: str) -> Cost:
    if isinstance(found, dict):
        _check_members(found, ("base", "slope"), place)
        base = _number(found.get("base", 0), f"{place}.base")
        return LinearCost(base, _number(found.get("slope"), f"{place}.slope"))
    if isinstance(found, list):
        return TableCost(tuple(_point(each, f"{place}[{n}]") for n, each in enumerate(found)))
    cost = _number(found, place)
    return ConstantCost(cost) if cost else FREE


def cost_form(cost: Cost) -> object:
    if isinstance(cost, ConstantCost):
        return cost.cost
    if isinstance(cost, LinearCost):
        return {"base": cost.base, "slope": cost.slope}
    return [list(point) for point in cost.points]


def _point(found: object, place: str) -> tuple[Value, float]:
    if not isinstance(found, list) or len(found) != 2:
        raise QualityError(place, f"expected [value, cost], got {shown(found)}")
    return _value(found[0], place), _number(found[1], place)


# Notices to clients


def state_form(changed: StateChanged, own_id: str, channel: str) -> Json:
    form: Json = {"expectation": own_id, "channel": channel, "state": changed.state.word}
    if changed.decision is not AdaptationDecision.NONE:
        form["decision"] = changed.decision.value
    if changed.reasons:
        form["reasons"] = [
            {"property": reason.property, "now": reason.now} for reason in changed.reasons
        ]
    return form


def advice_form(advice: Advice) -> Json:
    return {
        "kind": "advice",
        "channel": advice.channel,
        "property": advice.property,
        "target": advice.target,
        "release": advice.is_release,
    }


def usage_form(usage: UsageChanged) -> Json:
    return {
        "kind": "usage",
        "channel": usage.channel,
        "expectations": usage.expectations,
        "utility": usage.utility,
    }


# Helpers


def _value(found: object, place: str) -> Value:
    if isinstance(found, str):
        return found
    return _number(found, place, "a number or a level")


def _number(found: object, place: str, expected: str = "a number") -> float:
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise QualityError(place, f"expected {expected}, got {shown(found)}")
    try:
        return float(found)
    except OverflowError:
        raise QualityError(place, "expected a smaller number") from None


def _check_members(found: Json, expected: tuple[str, ...], place: str) -> None:
    for name in found:
        if name not in expected:
            raise QualityError(place, f"expected {', '.join(expected)}, got {shown(name)}")
