"""Expectations and profiles as XML and JSON, both ways; a problem is reported with its location."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from accord.core.quality.costs import FREE, ConstantCost, Cost, LinearCost, TableCost
from accord.core.quality.expectations import Expectation, PropertyRequirement, score_expectation
from accord.core.quality.profiles import Capability, Coupling, Profile, check_profile
from accord.core.quality.properties import (
    Property,
    PropertyRegistry,
    QualityError,
    Value,
    read_number,
    shown,
)
from accord.core.quality.stored_records import (
    ROOT,
    StoredRecord,
    from_json,
    from_xml,
    to_json,
    to_xml,
)

T = TypeVar("T")


class QualityDocument(msgspec.Struct, frozen=True):
    expectations: tuple[Expectation, ...] = ()
    profiles: tuple[Profile, ...] = ()


def read_xml(source: bytes, registry: PropertyRegistry) -> QualityDocument:
    return _stored(from_xml(source), registry)


def read_json(text: str | bytes, registry: PropertyRegistry) -> QualityDocument:
    return _stored(from_json(text), registry)


def write_xml(stored: QualityDocument) -> bytes:
    return to_xml(_written(stored))


def write_json(stored: QualityDocument) -> str:
    return to_json(_written(stored))


# Reading


def _stored(record: StoredRecord, registry: PropertyRegistry) -> QualityDocument:
    expectations = _all(record, "expectations", lambda each: _expectation(each, registry))
    profiles = _all(record, "profiles", lambda each: _profile(each, registry))
    return QualityDocument(expectations, profiles)


def _expectation(record: StoredRecord, registry: PropertyRegistry) -> Expectation:
    expectation = Expectation(
        id=record.text("id"),
        subscription=record.text("subscription"),
        channel=record.text("channel"),
        requirements=_all(record, "requirements", lambda each: _requirement(each, registry)),
        utility=_number(record, "utility", 1.0),
        publishers=_integer(record, "publishers", 1),
    )
    return _checked(record, expectation, lambda: score_expectation(expectation, registry))


def _requirement(record: StoredRecord, registry: PropertyRegistry) -> PropertyRequirement:
    property_ = _property(record, "property", registry)
    lower, upper = (_value(record, name, property_) for name in ("lower", "upper"))
    return PropertyRequirement(property_.name, lower, upper)


def _profile(record: StoredRecord, registry: PropertyRegistry) -> Profile:
    profile = Profile(
        publisher=record.text("publisher"),
        channel=record.text("channel"),
        capabilities=_all(record, "capabilities", lambda each: _capability(each, registry)),
        couplings=_all(record, "couplings", lambda each: _coupling(each, registry)),
    )
    return _checked(record, profile, lambda: check_profile(profile, registry))


def _capability(record: StoredRecord, registry: PropertyRegistry) -> Capability:
    property_ = _property(record, "property", registry)
    values: list[Value] = []
    for name in ("lower", "upper", "current"):
        value = _value(record, name, property_)
        if value is None:
            raise record.problem(f"capability: {name}: expected, but missing")
        values.append(value)
    cost = FREE if record.cost is None else _cost(record.cost, property_)
    return Capability(property_.name, values[0], values[1], values[2], cost)


def _cost(record: StoredRecord, property_: Property) -> Cost:
    if record.kind == "constant":
        return ConstantCost(_number(record, "cost"))
    if record.kind == "linear":
        return LinearCost(_number(record, "base"), _number(record, "slope"))
    points = _all(record, "points", lambda each: _point(each, property_))
    return TableCost(points)


def _point(record: StoredRecord, property_: Property) -> tuple[Value, float]:
    value = _value(record, "at", property_)
    if value is None:
        raise record.problem("point: at: expected, but missing")
    return value, _number(record, "cost")


def _coupling(record: StoredRecord, registry: PropertyRegistry) -> Coupling:
    of, on = (_property(record, name, registry).name for name in ("of", "on"))
    return Coupling(of, on, _number(record, "per_unit"))


def _all(record: StoredRecord, name: str, read: Callable[[StoredRecord], T]) -> tuple[T, ...]:
    return tuple(read(each) for each in record.lists.get(name, []))


def _checked(record: StoredRecord, found: T, check: Callable[[], object]) -> T:
    try:
        check()
    except QualityError as error:
        raise record.problem(str(error)) from None
    return found


def _property(record: StoredRecord, name: str, registry: PropertyRegistry) -> Property:
    try:
        return registry.get(record.text(name))
    except QualityError as error:
        if error.place == record.location:
            raise
        raise record.problem(f"{record.kind}: {error}") from None


def _value(record: StoredRecord, name: str, property_: Property) -> Value | None:
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


def _number(record: StoredRecord, name: str, default: float | None = None) -> float:
    found = record.values.get(name, default)
    number = read_number(found) if isinstance(found, str) else found
    if number is None:
        got = "nothing" if found is None else shown(found)
        raise record.problem(f"{record.kind}: {name}: expected a number, got {got}")
    return float(number)


def _integer(record: StoredRecord, name: str, default: int) -> int:
    number = _number(record, name, default)
    if not number.is_integer():
        raise record.problem(f"{record.kind}: {name}: expected an integer, got {shown(number)}")
    return int(number)


# Writing


def _written(stored: QualityDocument) -> StoredRecord:
    record = StoredRecord(ROOT, "")
    record.lists["expectations"] = [_from_expectation(each) for each in stored.expectations]
    record.lists["profiles"] = [_from_profile(each) for each in stored.profiles]
    return record


def _from_expectation(expectation: Expectation) -> StoredRecord:
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


def _from_profile(profile: Profile) -> StoredRecord:
    record = _with("profile", publisher=profile.publisher, channel=profile.channel)
    record.lists["capabilities"] = [_from_capability(each) for each in profile.capabilities]
    record.lists["couplings"] = [
        _with("coupling", of=each.of, on=each.on, per_unit=each.per_unit)
        for each in profile.couplings
    ]
    return record


def _from_capability(capability: Capability) -> StoredRecord:
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


def _from_cost(cost: Cost) -> StoredRecord:
    if isinstance(cost, ConstantCost):
        return _with("constant", cost=cost.cost)
    if isinstance(cost, LinearCost):
        return _with("linear", base=cost.base, slope=cost.slope)
    record = StoredRecord("table", "")
    record.lists["points"] = [_with("point", at=at, cost=each) for at, each in cost.points]
    return record


def _with(kind: str, **values: Value | None) -> StoredRecord:
    record = StoredRecord(kind, "")
    for name, value in values.items():
        if value is not None:
            record.values[name] = value if isinstance(value, str) else float(value)
    return record
