"""Loads a scenario from its file, checks it as a whole, and makes simulations of it.

    scenario = load_scenario("scenario.toml")
    outcome = scenario.simulation(make, seed=7).run(scenario.duration_us)

Problems are reported with file, line and what was expected, as for `accord.toml`; all at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final, cast

from accord.config.errors import ConfigError, ConfigProblem
from accord.config.load import dotted, parse_toml, read_text
from accord.config.scenario_reader import ScenarioReader
from accord.config.toml_lines import Path as KeyPath
from accord.core.model.channels import problem_with_filter
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
