"""Scenario files: what they say is done, and what is wrong in them is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sim.machines import Flooder, S

from accord.config.errors import ConfigError
from accord.config.scenario import Scenario, load_scenario, parse_scenario
from accord.sim.checkers import DeadlineChecker, DeliveryChecker, DuplicateChecker, OrderChecker
from accord.sim.delays import Constant, Lognormal, Recorded
from accord.sim.faults import ChangeLoss, Heal, LinkDown, LinkUp, NodeDown, NodeUp, SlowDown, Timed
from accord.sim.machine import ChannelSpec
from accord.sim.scenario_builder import make_faults, specs

DATA = Path(__file__).parent.parent / "sim" / "data"

WHOLE = """
[run]
duration = "2min"
seed = 7
settle = "2 s"
patience = "5s"
check_invariants = true

[topology]
kind = "ring"
nodes = 6
delay = "20 ms"

[links]
mode = "stream"
shape = "lognormal"
spread = 0.3
loss = 0.05
jitter = "500us"
rate = "10 Mbit/s"
queue_bytes = "1 MB"

[[link]]
between = ["n1", "n0"]
delay = "5 ms"
loss = 0.0

[[faults]]
at = "30s"
kind = "link_down"
between = ["n2", "n3"]
lasts = "10s"

[[faults]]
at = "50s"
kind = "node_down"
node = "n5"
lasts = "5s"
disk = "lost"

[[faults]]
at = "70s"
kind = "slow_down"
between = ["n0", "n1"]
factor = 3

[[faults]]
at = "80s"
kind = "loss"
between = ["n0", "n1"]
share = 0.2
lasts = "1s"

[[faults]]
at = "90s"
kind = "partition"
groups = [["n0", "n1"], ["n3"]]
lasts = "1s"

[random_faults]
link_down_share = 0.01
link_down = "2s"

[channels."uav/#"]
max_delay = "400 ms"
paths = 2
resiliency = 0.99

[publishers.camera]
channel = "uav/imagery"
node = "n0"
rate_hz = 5
attributes = { platform = ["UAV", "car"], height = { least = 0, most = 100 } }

[publishers.other]
channel = "ground/report"
count = 3
pattern = "poisson"
deadline = "1 s"

[subscribers.analyst]
filter = "#"
node = "n3"
qos = 1

[subscribers.high]
filter = "uav/+"
count = 2
where = "height > 50"
away = "10 s"
there = "20 s"

[checks]
delivered = 0.9
in_time = 0.5
order = true
"""


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_scenario(text)
    return caught.value.parts()


def test_everything_that_a_scenario_says() -> None:
    scenario = parse_scenario(WHOLE)
    assert scenario.duration_us == 120 * S
    simulation = scenario.simulation(Flooder)
    assert simulation.seed == 7
    assert simulation.options.settle_us == 2 * S
    assert simulation.options.is_checking
    link = simulation.network.link("n0", "n1").model
    assert (link.delay, link.loss, link.jitter_us, link.rate_bps) == (
        Constant(5_000),
        0.0,
        500,
        10**7,
    )
    assert simulation.network.link("n1", "n2").model.delay == Lognormal(20_000, 0.3)
    assert simulation.network.link("n1", "n2").model.queue_bytes == 10**6
    assert [type(checker) for checker in simulation.checkers] == [
        DeliveryChecker,
        DeadlineChecker,
        DuplicateChecker,
        OrderChecker,
    ]
    assert simulation.hosts["n0"].links["n5"].model.loss == 0.05


def test_faults_and_their_ends() -> None:
    quiet = WHOLE.replace("link_down_share = 0.01", "link_down_share = 0.0")
    scenario = parse_scenario(quiet)
    faults = make_faults(scenario.settings, scenario.topology, 7)
    assert faults[:8] == [
        Timed(30 * S, LinkDown("n2", "n3")),
        Timed(40 * S, LinkUp("n2", "n3")),
        Timed(50 * S, NodeDown("n5", "lost")),
        Timed(55 * S, NodeUp("n5")),
        Timed(70 * S, SlowDown("n0", "n1", 3.0)),
        Timed(80 * S, ChangeLoss("n0", "n1", 0.2)),
        Timed(81 * S, ChangeLoss("n0", "n1", 0.0)),  # as it was for this link
        Timed(90 * S, faults[7].fault),
    ]
    assert faults[8] == Timed(91 * S, Heal())
    assert specs(scenario.settings) == [ChannelSpec("uav/#", 400_000, 2, 0.99)]


def test_it_runs_and_can_be_replayed() -> None:
    scenario = parse_scenario(WHOLE, file="folder/mine.toml")
    outcome = scenario.simulation(Flooder, seed=9).run(scenario.duration_us)
    assert outcome.replay == "accord sim run folder/mine.toml --seed 9"
    imagery = outcome.channels["uav/imagery"]
    assert imagery.published == 600
    assert imagery.delivered > 500
    assert imagery.in_time < imagery.delivered  # the channel's delay is the deadline
    assert outcome.channels["ground/report"].published > 200
    again = scenario.simulation(Flooder, seed=9).run(scenario.duration_us)
    assert again.trace == outcome.trace
    assert scenario.simulation(Flooder, seed=10).run(scenario.duration_us).trace != outcome.trace


def test_an_empty_file_is_a_scenario() -> None:
    scenario = parse_scenario("")
    assert len(scenario.topology.nodes) == 50
    assert scenario.topology.is_connected
    assert isinstance(scenario, Scenario)


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("line", 9), ("ring", 9), ("star", 9), ("complete", 9), ("grid", 25), ("geometric", 9),
        ("waxman", 9), ("barabasi_albert", 9),
    ],
)  # fmt: skip
def test_kinds_of_topologies(kind: str, count: int) -> None:
    scenario = parse_scenario(f'[topology]\nkind = "{kind}"\nnodes = 9\n')
    assert len(scenario.topology.nodes) == count


def test_topologies_from_files_are_relative_to_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "epoch.json").write_bytes((DATA / "epoch.json").read_bytes())
    for number in (1, 2, 3):
        name = f"seattle_{number}.txt"
        (tmp_path / name).write_bytes((DATA / name).read_bytes())
    file = tmp_path / "scenario.toml"
    file.write_text('[topology]\nkind = "file"\nfile = "epoch.json"\n')
    assert "Denver" in load_scenario(file).topology.nodes
    file.write_text(
        '[topology]\nkind = "latencies"\nnodes = 6\nunit = "s"\n'
        'latencies = ["seattle_1.txt", "seattle_2.txt", "seattle_3.txt"]\n[links]\nstep = "1h"\n'
    )
    scenario = load_scenario(file)
    span = scenario.topology.spans[0]
    model = scenario.simulation(Flooder).network.link(span.one, span.other).model
    assert model.delay == Recorded(span.series, 3_600 * S)
    assert len(span.series) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[run]\nduratoin = 3",
            "scenario.toml:2: run.duratoin: unknown key, did you mean duration?",
        ),
        ("[run]\n\nduration = 3", 'scenario.toml:3: run.duration: expected a time such as "20 ms"'),
        ('[run]\nduration = "3 parsecs"', "got '3 parsecs'"),
        (
            "[run]\nseed = -1",
            "scenario.toml:2: run.seed: expected 0 to 9223372036854775807, got -1",
        ),
        ('[topology]\nkind = "blob"', 'expected one of "barabasi_albert", "complete"'),
        ("[topology]\nnodes = 0", "expected 1 to 10000, got 0"),
        ("[topology]\nnodes = 5000", "at most 3000 nodes, got 5000"),
        ('[topology]\nkind = "file"', "topology.file: expected the path of a graph file"),
        (
            '[topology]\nkind = "file"\nfile = "no.json"',
            "scenario.toml:3: topology.file: no.json: no such",
        ),
        ('[topology]\nkind = "latencies"', "expected the paths of files with latencies"),
        (
            "[links]\nloss = 1.5",
            "scenario.toml:2: links.loss: expected a number from 0 to 0.999999",
        ),
        ("[links]\nloss = true", "expected a number from 0"),
        ('[links]\nrate = "fast"', "expected a bandwidth such as \"10 Mbit/s\", got 'fast'"),
        ('[[link]]\nbetween = ["n1"]', 'expected two nodes such as ["n00", "n01"]'),
        (
            '[topology]\nkind = "line"\nnodes = 3\n[[link]]\nbetween = ["n0", "n2"]',
            "scenario.toml:5: link[1].between: expected linked nodes, got n0 and n2",
        ),
        ('[[faults]]\nkind = "node_down"', "faults[1].at: expected, but missing"),
        (
            '[[faults]]\nat = "1s"\nkind = "node_down"\nnode = "x"',
            "expected a node of the topology, got 'x'",
        ),
        ('[[faults]]\nat = "1s"\nkind = "link_down"', "expected two linked nodes, got none"),
        ('[[faults]]\nat = "1s"\nkind = "partition"\ngroups = [["x"]]', "got x"),
        ('[[faults]]\nat = "1s"\nkind = "partition"\ngroups = "x"', "expected lists of nodes"),
        ('[publishers.p]\nchannel = "a/#"', "expected a channel without wildcards"),
        (
            '[publishers.p]\nchannel = "a"\nnode = "x"',
            "scenario.toml:3: publishers.p.node: expected a node",
        ),
        (
            '[publishers.p]\nchannel = "a"\nrate_hz = 0',
            "publishers.p.rate_hz: expected a number from 1e-06",
        ),
        (
            '[publishers.p]\nchannel = "a"\nattributes = { x = { least = 3, most = 1 } }',
            "expected a list of values",
        ),
        ('[subscribers.s]\nfilter = "a#"', "wildcard to fill its whole level"),
        ('[subscribers.s]\nfilter = "a"\nwhere = "x >"', "scenario.toml:3: subscribers.s.where:"),
        ('[channels."a#"]\npaths = 1', "wildcard to fill its whole level"),
        ("[checks]\ndelivered = 2", "expected a number from 0 to 1, got 2"),
        ('[run]\nduration = "30s"\n[random_faults]\nlink_down_share = 0.1', "random_faults.quiet"),
        ("[run", "scenario.toml:1: not TOML"),
        ("run = 3", "scenario.toml:1: run: expected a table, got 3"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, problem: str) -> None:
    found = mistakes(text)
    assert len(found) == 1
    assert problem in found[0]
    assert found[0].startswith("scenario.toml:")


def test_all_mistakes_are_told_at_once() -> None:
    assert len(mistakes("[run]\nseed = -1\n[links]\nloss = 2\n[checks]\norder = 1\n")) == 3


def test_a_graph_in_parts_is_refused_unless_the_largest_is_wanted(tmp_path: Path) -> None:
    nodes = '[{"id": 1}, {"id": 2}, {"id": 3}]'
    edges = '[{"source": 1, "target": 2}]'
    (tmp_path / "parts.json").write_text(f'{{"nodes": {nodes}, "edges": {edges}}}')
    file = tmp_path / "scenario.toml"
    file.write_text('[topology]\nkind = "file"\nfile = "parts.json"\n')
    with pytest.raises(ConfigError, match='expected "largest", as the graph falls into 2 parts'):
        load_scenario(file)
    file.write_text('[topology]\nkind = "file"\nfile = "parts.json"\npart = "largest"\n')
    assert load_scenario(file).topology.nodes == ("n1", "n2")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_scenario(tmp_path / "none.toml")
