"""Recorded latencies: matrices of round trips between nodes, and series of single links.

A matrix is a text file with a line for each node, which lists the round trip to each, separated by
blanks, tabs or commas. Several files of equal size are successive samples of one network: each link
then has a series of delays. Round trips are halved, and the two directions of a link averaged. A
zero off the diagonal is below the resolution: it counts as half of the smallest value measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt

from accord.sim.clock import stream
from accord.sim.graph import MAX_BYTES, read_bytes
from accord.sim.topology import MIN_US, Span, Topology, names
from accord.sim.trace import GraphError

MAX_ROWS: Final = 2_000
MAX_FILES: Final = 1_000
MAX_POINTS: Final = 1_000_000
MAX_US: Final = 3_600_000_000.0

Matrix = npt.NDArray[np.float64]


def read_matrix(path: str | Path, unit_us: int) -> Matrix:
    """One-way delays in µs between all nodes; `unit_us` is the unit of the file."""
    file = Path(path)
    rows: list[list[float]] = []
    for number, line in enumerate(_lines(file), 1):
        values = _numbers(line, f"{file}:{number}")
        if not values:
            continue
        if rows and len(values) != len(rows[0]):
            problem = f"expected {len(rows[0])} values as in the first line, got {len(values)}"
            raise GraphError(f"{file}:{number}", problem)
        if len(values) > MAX_ROWS:
            raise GraphError(f"{file}:{number}", f"expected at most {MAX_ROWS} nodes")
        rows.append(values)
    if len(rows) < 2 or len(rows) != len(rows[0]):
        wide = len(rows[0]) if rows else 0
        raise GraphError(str(file), f"expected as many lines as columns, got {len(rows)} × {wide}")
    trips = np.array(rows, dtype=np.float64) * unit_us
    if float(trips.max()) > MAX_US:
        raise GraphError(str(file), "expected round trips below an hour: is the unit right?")
    np.fill_diagonal(trips, 0.0)
    measured = trips[trips > 0]
    trips[trips == 0] = float(measured.min()) / 2.0 if measured.size else MIN_US
    one_way: Matrix = np.maximum((trips + trips.T) / 4.0, MIN_US)
    np.fill_diagonal(one_way, 0.0)
    return one_way


def read_series(path: str | Path, unit_us: int) -> tuple[int, ...]:
    """Delays of one link in µs, in the order of the file."""
    file = Path(path)
    found = [
        round(value * unit_us)
        for number, line in enumerate(_lines(file), 1)
        for value in _numbers(line, f"{file}:{number}")
    ]
    if not 1 <= len(found) <= MAX_POINTS:
        raise GraphError(str(file), f"expected 1 to {MAX_POINTS} delays, got {len(found)}")
    return tuple(found)


def from_matrices(
    matrices: Sequence[Matrix], count: int, seed: int, nearest: int = 3, far: int = 1
) -> Topology:
    """A network of `count` of the nodes, chosen at random.

    A minimum spanning tree connects them; besides, each is linked to its `nearest`, and to `far`
    others at any distance. A link's series are its delays in all matrices.
    """
    if not 1 <= len(matrices) <= MAX_FILES:
        raise GraphError("latencies", f"expected 1 to {MAX_FILES} files, got {len(matrices)}")
    size = len(matrices[0])
    if any(len(matrix) != size for matrix in matrices):
        raise GraphError("latencies", "expected files with as many nodes as the first")
    if not 2 <= count <= size:
        raise GraphError("latencies", f"expected 2 to {size} nodes, got {count}")
    random = stream(seed, "topology", "latencies")
    chosen = sorted(random.sample(range(size), count))
    moments = np.stack([matrix[np.ix_(chosen, chosen)] for matrix in matrices])
    typical: Matrix = np.median(moments, axis=0)
    nodes = names(count)
    pairs = dict.fromkeys(_tree(typical))
    pairs |= dict.fromkeys(_more(typical, nearest, far, random))
    spans = [
        Span(nodes[one], nodes[other], round(float(typical[one, other])), series)
        for one, other in pairs
        for series in (tuple(round(float(delay)) for delay in moments[:, one, other]),)
    ]
    return Topology("latencies", nodes, spans)


def _tree(delays: Matrix) -> Iterator[tuple[int, int]]:
    """Edges of the minimum spanning tree, by Prim's algorithm."""
    count = len(delays)
    best = delays[0].copy()
    origin = np.zeros(count, dtype=np.int64)
    best[0] = math.inf
    is_in = np.zeros(count, dtype=np.bool_)
    is_in[0] = True
    for _ in range(count - 1):
        node = int(np.argmin(np.where(is_in, math.inf, best)))
        yield _pair(int(origin[node]), node)
        is_in[node] = True
        is_nearer = delays[node] < best
        best = np.where(is_nearer, delays[node], best)
        origin = np.where(is_nearer, node, origin)


def _more(delays: Matrix, nearest: int, far: int, random: Random) -> Iterator[tuple[int, int]]:
    count = len(delays)
    for one in range(count):
        order = np.argsort(delays[one], kind="stable").tolist()
        near = [other for other in order if other != one][:nearest]
        others = [other for other in range(count) if other != one]
        for other in (*near, *random.sample(others, min(far, len(others)))):
            yield _pair(one, other)


def _pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


def _lines(file: Path) -> list[str]:
    try:
        return read_bytes(file, 2 * MAX_BYTES).decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise GraphError(str(file), f"expected numbers as text, got {error.reason}") from None


def _numbers(line: str, place: str) -> list[float]:
    found = []
    for part in line.replace(",", " ").split():
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not 0.0 <= value < math.inf:
            raise GraphError(place, f"expected a number of at least 0, got {part[:40]!r}")
        found.append(value)
    return found
