"""Loads a scenario from its file, checks it as a whole, and makes simulations of it.

    scenario = load_scenario("scenario.toml")
    outcome = scenario.simulation(make, seed=7).run(scenario.duration_us)

Problems are reported with file, line and what was expected, as for `accord.toml`; all at once.

Reads the value types that only scenario files have, such as times and fractions.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from os.path import join
from typing import Any, Final, cast

from accord.config.errors import ConfigError, ConfigProblem
from accord.config.load import dotted, parse_toml, read_text
from accord.config.reader import SettingsReader, shown
from accord.config.toml_lines import Path
from accord.config.toml_lines import Path as KeyPath
from accord.core.model.channels import problem_with_channel, problem_with_filter
from accord.core.model.errors import PredicateError
from accord.core.model.event import problem_with_name
from accord.core.model.units import BANDWIDTHS_BPS, DURATIONS_MS
from accord.core.model.units import parse as parse_units
from accord.core.model.values import problem_with
from accord.core.predicates.predicate import parse as parse_predicate
from accord.sim.machine import Make
from accord.sim.run import Options, Simulation
from accord.sim.scenario_builder import (
    make_checkers,
    make_faults,
    make_model,
    make_topology,
    make_workload,
    specs,
)
from accord.sim.scenario_settings import ANY, FaultSettings, ScenarioSettings
from accord.sim.topology import Topology
from accord.sim.trace import GraphError, SimulationError, Trace
from accord.sim.workloads import Choice, Range

DURATIONS_US: Final = {"us": 1, "µs": 1, **{u: 1_000 * ms for u, ms in DURATIONS_MS.items()}}
MAX_US: Final = 10 * 365 * 86_400 * 1_000_000
MAX_NUMBER: Final = 1_000_000.0
MAX_VALUES: Final = 1_000


class ScenarioReader(SettingsReader):
    """Reads the value types that the settings of a scenario name."""

    def __init__(self, report: Callable[[Path, str], None], directory: str) -> None:
        super().__init__(report, directory)
        self._readers |= {
            "time": self._read_time,
            "bandwidth": self._read_bandwidth,
            "share": lambda value, path: self._read_within(value, path, 0.0, 0.999_999),
            "positive share": lambda value, path: self._read_within(value, path, 0.001, 10.0),
            "whole share": lambda value, path: self._read_within(value, path, 0.0, 1.0),
            "number": lambda value, path: self._read_within(value, path, 0.0, MAX_NUMBER),
            "rate": lambda value, path: self._read_within(value, path, 0.000_001, MAX_NUMBER),
            "paths": self._read_paths,
            "node": self._read_node,
            "two nodes": self._read_two_nodes,
            "groups": self._read_groups,
            "channel": self._read_channel,
            "filter": self._read_filter,
            "selector": self._read_selector,
            "attributes": self._read_attributes,
        }

    def _read_time(self, value: object, path: Path) -> int:
        # A number has no unit, but zero is zero in every unit.
        if value == 0 and not isinstance(value, bool):
            return 0
        text = value.replace("µ", "u") if isinstance(value, str) else ""
        time_us = parse_units(text, DURATIONS_US)
        if time_us is None or time_us > MAX_US:
            self._report(path, f'expected a time such as "20 ms" or "10min", got {shown(value)}')
            return 0
        return time_us

    def _read_bandwidth(self, value: object, path: Path) -> int:
        if value == 0 and not isinstance(value, bool):
            return 0
        rate_bps = parse_units(value, BANDWIDTHS_BPS) if isinstance(value, str) else None
        if not rate_bps:
            self._report(path, f'expected a bandwidth such as "10 Mbit/s", got {shown(value)}')
            return 0
        return rate_bps

    def _read_within(self, value: object, path: Path, least: float, most: float) -> float:
        number = float(value) if isinstance(value, int | float) else math.nan
        if isinstance(value, bool) or not least <= number <= most:
            self._report(path, f"expected a number from {least:g} to {most:g}, got {shown(value)}")
            return least
        return number

    def _read_paths(self, value: object, path: Path) -> tuple[str, ...]:
        texts = value if isinstance(value, list) else [value]
        found = [text for text in texts if isinstance(text, str) and text and "\0" not in text]
        if not found or len(found) != len(texts):
            self._report(path, f"expected the paths of files, got {shown(value)}")
        return tuple(join(self._directory, text) for text in found)

    def _read_node(self, value: object, path: Path) -> str:
        if not isinstance(value, str) or not value:
            self._report(path, f"expected the name of a node, got {shown(value)}")
            return ""
        return value

    def _read_two_nodes(self, value: object, path: Path) -> tuple[str, ...]:
        nodes = self._nodes(value)
        if nodes is None or len(nodes) != 2:
            self._report(path, f'expected two nodes such as ["n00", "n01"], got {shown(value)}')
            return ()
        return nodes

    def _read_groups(self, value: object, path: Path) -> tuple[tuple[str, ...], ...]:
        groups = [self._nodes(each) for each in value] if isinstance(value, list) else []
        found = tuple(group for group in groups if group)
        if not groups or len(found) != len(groups):
            self._report(
                path, f'expected lists of nodes such as [["n00", "n01"]], got {shown(value)}'
            )
        return found

    def _nodes(self, value: object) -> tuple[str, ...] | None:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return None
        return tuple(value)

    def _read_channel(self, value: object, path: Path) -> str:
        return self._read_text(value, path, "a channel", problem_with_channel)

    def _read_filter(self, value: object, path: Path) -> str:
        return self._read_text(value, path, "a filter of channels", problem_with_filter)

    def _read_selector(self, value: object, path: Path) -> str:
        return self._read_text(value, path, "a condition over attributes", _problem_with_selector)

    def _read_text(
        self, value: object, path: Path, what: str, problem_with: Callable[[str], str | None]
    ) -> str:
        if not isinstance(value, str):
            self._report(path, f"expected {what}, got {shown(value)}")
            return ""
        if problem := problem_with(value):
            self._report(path, problem)
        return value

    def _read_attributes(self, value: object, path: Path) -> dict[str, Choice | Range]:
        if not isinstance(value, dict):
            self._report(path, f"expected a table of attributes, got {shown(value)}")
            return {}
        found = {}
        for name, source in value.items():
            if problem := problem_with_name(name):
                self._report((*path, name), problem)
            made = _source(source)
            if made is None:
                problem = "expected a list of values, or { least = NUMBER, most = NUMBER }"
                self._report((*path, name), f"{problem}, got {shown(source)}")
            else:
                found[name] = made
        return found


def _source(value: object) -> Choice | Range | None:
    if isinstance(value, dict):
        least, most = value.get("least"), value.get("most")
        is_plain = set(value) == {"least", "most"} and _is_number(least) and _is_number(most)
        if not is_plain:
            return None
        assert isinstance(least, int | float)
        assert isinstance(most, int | float)
        return Range(least, most) if least <= most else None
    values: list[Any] = value if isinstance(value, list) else [value]
    is_good = 1 <= len(values) <= MAX_VALUES and not any(map(problem_with, values))
    return Choice(tuple(values)) if is_good else None


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= MAX_NUMBER * MAX_NUMBER
    )


def _problem_with_selector(text: str) -> str | None:
    try:
        parse_predicate(text)
    except PredicateError as error:
        return error.summary
    return None


FILE: Final = "scenario.toml"

ReportFn = Callable[[KeyPath, str], None]


class Scenario:
    """A checked scenario. Its simulations are independent of each other."""

    def __init__(self, settings: ScenarioSettings, topology: Topology, file: str = FILE) -> None:
        self.settings = settings
        self.topology = topology
        self.file = file

    @property
    def duration_us(self) -> int:
        return self.settings.run.duration

    def simulation(
        self, make: Make, *, seed: int | None = None, trace: Trace | None = None
    ) -> Simulation:
        settings = self.settings
        chosen = settings.run.seed if seed is None else seed
        return Simulation(
            self.topology,
            make,
            seed=chosen,
            model=make_model(settings),
            faults=make_faults(settings, self.topology, chosen),
            workload=make_workload(settings, self.topology, chosen),
            channels=specs(settings),
            checkers=make_checkers(settings),
            options=Options(
                settle_us=settings.run.settle,
                patience_us=settings.run.patience,
                is_checking=settings.run.check_invariants,
            ),
            trace=trace,
            replay=self.replay(chosen),
        )

    def replay(self, seed: int) -> str:
        """The command that repeats the run exactly."""
        return f"accord sim run {self.file} --seed {seed}"


def load_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Load the scenario in a file; raises ConfigError with all its problems."""
    file = os.fspath(path)
    return parse_scenario(read_text(file), file=file)


def parse_scenario(text: str, *, file: str = FILE) -> Scenario:
    table, lines = parse_toml(text, file)
    mistakes: list[ConfigProblem] = []

    def note(path: KeyPath, problem: str) -> None:
        mistakes.append(ConfigProblem(f"{file}:{lines.find(path)}", dotted(path), problem))

    reader = ScenarioReader(note, os.path.dirname(file))
    settings = cast("ScenarioSettings", reader.read_struct(ScenarioSettings, table, ()))
    topology = None
    if not mistakes:
        topology = _topology(settings, note)
    if topology is not None:
        for path, problem in _problems(settings, topology):
            note(path, problem)
    if mistakes or topology is None:
        raise ConfigError(mistakes)
    return Scenario(settings, topology, file)


def _topology(settings: ScenarioSettings, report: ReportFn) -> Topology | None:
    asked = settings.topology
    if asked.kind == "file" and not asked.file:
        report(("topology", "file"), "expected the path of a graph file")
        return None
    if asked.kind == "latencies" and not asked.latencies:
        report(("topology", "latencies"), "expected the paths of files with latencies")
        return None
    try:
        topology = make_topology(asked)
    except (GraphError, SimulationError) as error:
        key = asked.kind if asked.kind in ("file", "latencies") else "kind"
        report(("topology", key), str(error))
        return None
    if not topology.is_connected:
        parts = len(topology.parts())
        report(("topology", "part"), f'expected "largest", as the graph falls into {parts} parts')
        return None
    return topology


def _problems(settings: ScenarioSettings, topology: Topology) -> Iterator[tuple[KeyPath, str]]:
    """Settings that are valid alone but not in combination."""
    for number, exception in enumerate(settings.link):
        if not topology.has_span(*exception.between):
            one, other = exception.between
            yield ("link", number, "between"), f"expected linked nodes, got {one} and {other}"
    for number, fault in enumerate(settings.faults):
        for key, problem in _problems_with_fault(fault, topology):
            yield ("faults", number, key), problem
    for channel in settings.channels:
        if wrong := problem_with_filter(channel.name):
            yield ("channels", channel.name), wrong
    known = dict.fromkeys((*topology.nodes, ANY))
    places = [
        *(("publishers", each.name, each.node) for each in settings.publishers),
        *(("subscribers", each.name, each.node) for each in settings.subscribers),
    ]
    for section, name, node in places:
        if node not in known:
            yield (section, name, "node"), f"expected a node of the topology, got {node!r}"
    random = settings.random_faults
    if random.begin + random.quiet > settings.run.duration and any(
        getattr(random, name) for name in random.__struct_fields__ if name.endswith("down_share")
    ):
        yield ("random_faults", "quiet"), "expected less: nothing can fail in so short a run"


def _problems_with_fault(fault: FaultSettings, topology: Topology) -> Iterator[tuple[str, str]]:
    match fault.kind:
        case "node_down":
            if fault.node not in topology.nodes:
                yield "node", f"expected a node of the topology, got {fault.node!r}"
        case "partition":
            names = [name for group in fault.groups for name in group]
            missing = [name for name in names if name not in topology.nodes]
            if not names or missing:
                yield (
                    "groups",
                    f"expected nodes of the topology, got {', '.join(missing) or 'none'}",
                )
        case _:
            if len(fault.between) != 2 or not topology.has_span(*fault.between):
                got = " and ".join(fault.between) or "none"
                yield "between", f"expected two linked nodes, got {got}"
