"""The simulator: runs unmodified machines in virtual time, over networks with faults from a seed.

    from accord.sim import LinkModel, Simulation, waxman

    simulation = Simulation(waxman(50, seed=1), make, seed=7, model=LinkModel(loss=0.1))
    simulation.run(600_000_000).check()

`make` takes a `Start` and returns a `Machine`: `overlay_nodes()` makes whole nodes. Scenario files
are loaded by `accord.config.scenario.load_scenario`.
"""

from accord.core.model.former_names import deprecated
from accord.sim.checkers import (
    Checker,
    DeadlineChecker,
    DeliveryChecker,
    DuplicateChecker,
    Finding,
    OrderChecker,
    QueueChecker,
)
from accord.sim.delays import Constant, Delay, Lognormal, Normal, Recorded, Uniform
from accord.sim.faults import (
    ChangeLoss,
    Fault,
    Heal,
    LinkDown,
    LinkUp,
    NodeDown,
    NodeUp,
    Partition,
    RandomFaults,
    SlowDown,
    Timed,
)
from accord.sim.graph_files import read_topology
from accord.sim.latencies import from_matrices, read_matrix, read_series
from accord.sim.links import LinkModel, except_for, spread_around, with_delays
from accord.sim.machine import (
    ChannelSpec,
    Delivery,
    Machine,
    Make,
    Node,
    Publication,
    SimSubscription,
    Start,
)
from accord.sim.node import OverlayNode, overlay_nodes
from accord.sim.results import rows, write
from accord.sim.run import Options, Outcome, RunFailedError, Simulation
from accord.sim.template_checks import check_template
from accord.sim.topology import (
    Span,
    Topology,
    barabasi_albert,
    complete,
    geometric,
    grid,
    line,
    ring,
    star,
    waxman,
)
from accord.sim.trace import GraphError, SimulationError, Trace
from accord.sim.workloads import Choice, Publisher, Range, Subscriber, Workload

__all__ = [
    "ChangeLoss",
    "ChannelSpec",
    "Checker",
    "Choice",
    "Constant",
    "DeadlineChecker",
    "Delay",
    "Delivery",
    "DeliveryChecker",
    "DuplicateChecker",
    "Fault",
    "Finding",
    "GraphError",
    "Heal",
    "LinkDown",
    "LinkModel",
    "LinkUp",
    "Lognormal",
    "Machine",
    "Make",
    "Node",
    "NodeDown",
    "NodeUp",
    "Normal",
    "Options",
    "OrderChecker",
    "Outcome",
    "OverlayNode",
    "Partition",
    "Publication",
    "Publisher",
    "QueueChecker",
    "RandomFaults",
    "Range",
    "Recorded",
    "RunFailedError",
    "SimSubscription",
    "Simulation",
    "SimulationError",
    "SlowDown",
    "Span",
    "Start",
    "Subscriber",
    "Timed",
    "Topology",
    "Trace",
    "Uniform",
    "Workload",
    "barabasi_albert",
    "check_template",
    "complete",
    "except_for",
    "from_matrices",
    "geometric",
    "grid",
    "line",
    "overlay_nodes",
    "read_matrix",
    "read_series",
    "read_topology",
    "ring",
    "rows",
    "spread_around",
    "star",
    "waxman",
    "with_delays",
    "write",
]

__getattr__ = deprecated(globals(), {"Wish": "SimSubscription"})
