"""Expectations and profiles in files, XML or JSON, as `accord quality` reads them.

for channel, expect in load(Path("desk.xml")).expectations.items():
    await stack.enter_async_context(session.subscribe(channel, expect=expect))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from accord.client.quality import Bounds, Capability, Cost, Coupling, Expectation, Line, Value
from accord.core.model.errors import file_problem
from accord.core.quality import costs, profiles
from accord.core.quality.expectations import Expectation as CoreExpectation
from accord.core.quality.expectations import PropertyRequirement
from accord.core.quality.properties import Better, PropertyRegistry, QualityError
from accord.core.quality.property_files import parse_properties
from accord.core.quality.serialisation import (
    QualityDocument,
    read_json,
    read_xml,
    write_json,
    write_xml,
)

MAX_BYTES: Final = 16_000_000


@dataclass(slots=True)
class Profile:
    """Capabilities of one publisher on one channel."""

    publisher: str
    channel: str
    capabilities: list[Capability]
    couplings: list[Coupling] = field(default_factory=list)


@dataclass(slots=True)
class QualityFile:
    """Expectations by channel (as alternatives), and profiles."""

    expectations: dict[str, list[Expectation]] = field(default_factory=dict)
    profiles: list[Profile] = field(default_factory=list)


def load(file: Path, *, properties: Sequence[Path] = ()) -> QualityFile:
    """Load a file that ends with .xml or .json; `properties` are files that define more properties.

    Raises QualityError, which has the line or path of the problem.
    """
    read = read_document(file, properties)
    kept = QualityFile()
    for expectation in read.expectations:
        bounds = {each.property: (each.lower, each.upper) for each in expectation.requirements}
        made = Expectation.of(
            bounds,
            utility=expectation.utility,
            publishers=expectation.publishers,
            id=expectation.id,
        )
        kept.expectations.setdefault(expectation.channel, []).append(made)
    kept.profiles = [
        Profile(
            profile.publisher,
            profile.channel,
            [from_core(each) for each in profile.capabilities],
            [Coupling(each.of, each.on, each.per_unit) for each in profile.couplings],
        )
        for profile in read.profiles
    ]
    return kept


def store(file: Path, kept: QualityFile, *, properties: Sequence[Path] = ()) -> None:
    """Write a file that `load` reads again; `properties` as there."""
    check_name(file)
    registry = read_registry(properties)
    stored = QualityDocument(
        tuple(
            _expectation(each, channel, number, registry)
            for channel, expectations in kept.expectations.items()
            for number, each in enumerate(expectations, start=1)
        ),
        tuple(_profile(each) for each in kept.profiles),
    )
    write_document(file, stored)


def read_document(file: Path, properties: Sequence[Path] = ()) -> QualityDocument:
    """The content of a file as nodes have it; `properties` as for `load`."""
    check_name(file)
    registry = read_registry(properties)
    text = read_text(file)
    with _located(file):
        if file.suffix == ".xml":
            return read_xml(text.encode(), registry)
        return read_json(text, registry)


def write_document(file: Path, document: QualityDocument) -> None:
    check_name(file)
    with _located(file):
        if file.suffix == ".xml":
            file.write_bytes(write_xml(document).rstrip() + b"\n")
        else:
            file.write_text(write_json(document).rstrip() + "\n")


def read_registry(files: Sequence[Path]) -> PropertyRegistry:
    """The built-in properties, and those that these files define."""
    registry = PropertyRegistry()
    for file in files:
        text = read_text(file)
        with _located(file):
            for each in parse_properties(text):
                registry.define(each)
    return registry


def read_text(file: Path) -> str:
    with _located(file), file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise QualityError("", f"expected at most {MAX_BYTES} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise QualityError("", "expected UTF-8 text") from None


@contextmanager
def _located(file: Path) -> Iterator[None]:
    """Names the file in what goes wrong with it."""
    try:
        yield
    except QualityError as error:
        place = f"{file}: {error.place}" if error.place else str(file)
        raise QualityError(place, error.problem) from None
    except OSError as error:
        raise QualityError(str(file), file_problem(error)) from None


def from_core(capability: profiles.Capability) -> Capability:
    cost: Cost = 0.0
    if isinstance(capability.cost, costs.ConstantCost):
        cost = capability.cost.cost
    elif isinstance(capability.cost, costs.LinearCost):
        cost = Line(capability.cost.base, capability.cost.slope)
    else:
        cost = capability.cost.points
    return Capability(
        capability.property,
        capability.lower,
        capability.upper,
        current=capability.current,
        cost=cost,
    )


def _expectation(
    expectation: Expectation, channel: str, number: int, registry: PropertyRegistry
) -> CoreExpectation:
    requirements = [
        _requirement(name, bounds, registry) for name, bounds in expectation.bounds.items()
    ]
    return CoreExpectation(
        id=expectation.id or f"{channel}#{number}",
        subscription=channel,
        channel=channel,
        requirements=tuple(requirements),
        utility=expectation.utility,
        publishers=expectation.publishers,
    )


def _requirement(name: str, bounds: Bounds, registry: PropertyRegistry) -> PropertyRequirement:
    """Build a requirement; a single value is the worst acceptable one."""
    if isinstance(bounds, tuple):
        return PropertyRequirement(name, _value(bounds[0]), _value(bounds[1]))
    if registry.get(name).better is Better.HIGHER:
        return PropertyRequirement(name, _exact(bounds), None)
    return PropertyRequirement(name, None, _exact(bounds))


def _profile(profile: Profile) -> profiles.Profile:
    capabilities = tuple(
        profiles.Capability(
            each.property,
            _exact(each.lower),
            _exact(each.upper),
            _exact(each.current),
            _cost(each.cost),
        )
        for each in profile.capabilities
    )
    couplings = tuple(
        profiles.Coupling(each.of, each.on, each.per_unit) for each in profile.couplings
    )
    return profiles.Profile(
        publisher=profile.publisher,
        channel=profile.channel,
        capabilities=capabilities,
        couplings=couplings,
    )


def _cost(cost: Cost) -> costs.Cost:
    if isinstance(cost, Line):
        return costs.LinearCost(cost.base, cost.slope)
    if isinstance(cost, (int, float)):
        return costs.ConstantCost(float(cost)) if cost else costs.FREE
    return costs.TableCost(tuple((_exact(value), float(each)) for value, each in cost))


def _value(value: Value | None) -> Value | None:
    return None if value is None else _exact(value)


def _exact(value: Value) -> Value:
    return value if isinstance(value, str) else float(value)


def check_name(file: Path) -> None:
    """Refuse a name whose ending does not give the format."""
    if file.suffix not in (".xml", ".json"):
        raise QualityError(str(file), "expected a name that ends with .xml or .json")
