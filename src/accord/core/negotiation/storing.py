"""Expectations and profiles as XML and as JSON, both ways; a mistake names its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from accord.core.negotiation.costs import FREE, Constant, Cost, Linear, Table
from accord.core.negotiation.errors import QualityError
from accord.core.negotiation.expectations import Expectation, Requirement, wanted_of
from accord.core.negotiation.profiles import Capability, Coupling, Profile, check_profile
from accord.core.negotiation.properties import (
    Property,
    Registry,
    Value,
    read_number,
    shown,
)
from accord.core.negotiation.records import (
    ROOT,
    Record,
    from_json,
    from_xml,
    to_json,
    to_xml,
)

T = TypeVar("T")


class Stored(msgspec.Struct, frozen=True):
    expectations: tuple[Expectation, ...] = ()
    profiles: tuple[Profile, ...] = ()


def read_xml(source: bytes, registry: Registry) -> Stored:
    return _stored(from_xml(source), registry)


def read_json(text: str | bytes, registry: Registry) -> Stored:
    return _stored(from_json(text), registry)


def write_xml(stored: Stored) -> bytes:
    return to_xml(_written(stored))


def write_json(stored: Stored) -> str:
    return to_json(_written(stored))


# Reading


def _stored(record: Record, registry: Registry) -> Stored:
    expectations = _all(record, "expectations", lambda each: _expectation(each, registry))
    profiles = _all(record, "profiles", lambda each: _profile(each, registry))
    return Stored(expectations, profiles)


def _expectation(record: Record, registry: Registry) -> Expectation:
    expectation = Expectation(
        id=record.text("id"),
        subscription=record.text("subscription"),
        channel=record.text("channel"),
        requirements=_all(record, "requirements", lambda each: _requirement(each, registry)),
        utility=_number(record, "utility", 1.0),
        publishers=_integer(record, "publishers", 1),
    )
    return _checked(record, expectation, lambda: wanted_of(expectation, registry))


def _requirement(record: Record, registry: Registry) -> Requirement:
    property_ = _property(record, "property", registry)
    lower, upper = (_value(record, name, property_) for name in ("lower", "upper"))
    return Requirement(property_.name, lower, upper)


def _profile(record: Record, registry: Registry) -> Profile:
    profile = Profile(
        publisher=record.text("publisher"),
        channel=record.text("channel"),
        capabilities=_all(record, "capabilities", lambda each: _capability(each, registry)),
        couplings=_all(record, "couplings", lambda each: _coupling(each, registry)),
    )
    return _checked(record, profile, lambda: check_profile(profile, registry))


def _capability(record: Record, registry: Registry) -> Capability:
    property_ = _property(record, "property", registry)
    values: list[Value] = []
    for name in ("lower", "upper", "current"):
        value = _value(record, name, property_)
        if value is None:
            raise record.problem(f"capability: {name}: expected, but missing")
        values.append(value)
    cost = FREE if record.cost is None else _cost(record.cost, property_)
    return Capability(property_.name, values[0], values[1], values[2], cost)


def _cost(record: Record, property_: Property) -> Cost:
    if record.kind == "constant":
        return Constant(_number(record, "cost"))
    if record.kind == "linear":
        return Linear(_number(record, "base"), _number(record, "slope"))
    points = _all(record, "points", lambda each: _point(each, property_))
    return Table(points)


def _point(record: Record, property_: Property) -> tuple[Value, float]:
    value = _value(record, "at", property_)
    if value is None:
        raise record.problem("point: at: expected, but missing")
    return value, _number(record, "cost")


def _coupling(record: Record, registry: Registry) -> Coupling:
    of, on = (_property(record, name, registry).name for name in ("of", "on"))
    return Coupling(of, on, _number(record, "per_unit"))


def _all(record: Record, name: str, read: Callable[[Record], T]) -> tuple[T, ...]:
    return tuple(read(each) for each in record.lists.get(name, []))


def _checked(record: Record, found: T, check: Callable[[], object]) -> T:
    try:
        check()
    except QualityError as error:
        raise record.problem(str(error)) from None
    return found


def _property(record: Record, name: str, registry: Registry) -> Property:
    try:
        return registry.get(record.text(name))
    except QualityError as error:
        if error.place == record.place:
            raise
        raise record.problem(f"{record.kind}: {error}") from None


def _value(record: Record, name: str, property_: Property) -> Value | None:
    found = record.values.get(name)
    if found is None:
        return None
    try:
        if isinstance(found, str):
            return property_.read(found)
        property_.position(found)
    except QualityError as error:
        raise record.problem(f"{record.kind}: {name}: {error}") from None
    return float(found)


def _number(record: Record, name: str, default: float | None = None) -> float:
    found = record.values.get(name, default)
    number = read_number(found) if isinstance(found, str) else found
    if number is None:
        got = "nothing" if found is None else shown(found)
        raise record.problem(f"{record.kind}: {name}: expected a number, got {got}")
    return float(number)


def _integer(record: Record, name: str, default: int) -> int:
    number = _number(record, name, default)
    if not number.is_integer():
        raise record.problem(f"{record.kind}: {name}: expected an integer, got {shown(number)}")
    return int(number)


# Writing


def _written(stored: Stored) -> Record:
    record = Record(ROOT, "")
    record.lists["expectations"] = [_from_expectation(each) for each in stored.expectations]
    record.lists["profiles"] = [_from_profile(each) for each in stored.profiles]
    return record


def _from_expectation(expectation: Expectation) -> Record:
    record = _with(
        "expectation",
        id=expectation.id,
        subscription=expectation.subscription,
        channel=expectation.channel,
        utility=expectation.utility,
        publishers=expectation.publishers,
    )
    record.lists["requirements"] = [
        _with("requirement", property=each.property, lower=each.lower, upper=each.upper)
        for each in expectation.requirements
    ]
    return record


def _from_profile(profile: Profile) -> Record:
    record = _with("profile", publisher=profile.publisher, channel=profile.channel)
    record.lists["capabilities"] = [_from_capability(each) for each in profile.capabilities]
    record.lists["couplings"] = [
        _with("coupling", of=each.of, on=each.on, per_unit=each.per_unit)
        for each in profile.couplings
    ]
    return record


def _from_capability(capability: Capability) -> Record:
    record = _with(
        "capability",
        property=capability.property,
        lower=capability.lower,
        upper=capability.upper,
        current=capability.current,
    )
    if capability.cost != FREE:
        record.cost = _from_cost(capability.cost)
    return record


def _from_cost(cost: Cost) -> Record:
    if isinstance(cost, Constant):
        return _with("constant", cost=cost.cost)
    if isinstance(cost, Linear):
        return _with("linear", base=cost.base, slope=cost.slope)
    record = Record("table", "")
    record.lists["points"] = [_with("point", at=at, cost=each) for at, each in cost.points]
    return record


def _with(kind: str, **values: Value | None) -> Record:
    record = Record(kind, "")
    for name, value in values.items():
        if value is not None:
            record.values[name] = value if isinstance(value, str) else float(value)
    return record
