"""Recorded latencies become networks whose links take as long as was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from accord.sim.latencies import from_matrices, read_matrix, read_series
from accord.sim.topology import MIN_US
from accord.sim.trace import GraphError

DATA = Path(__file__).parent / "data"
SEATTLE = [DATA / f"seattle_{number}.txt" for number in (1, 2, 3)]
S = 1_000_000


def write(folder: Path, text: str) -> Path:
    file = folder / "matrix.txt"
    file.write_text(text)
    return file


def test_round_trips_are_halved_and_both_directions_averaged(tmp_path: Path) -> None:
    matrix = read_matrix(write(tmp_path, "0 10 20\n30,0,40\n20\t60\t0\n"), 1_000)
    assert matrix.tolist() == [
        [0, 10_000, 10_000],
        [10_000, 0, 25_000],
        [10_000, 25_000, 0],
    ]


def test_zero_is_less_than_was_measured(tmp_path: Path) -> None:
    matrix = read_matrix(write(tmp_path, "0.4 0\n8 0\n"), 1_000)
    assert matrix[0, 1] == (8_000 + 4_000) / 4
    assert matrix[0, 0] == 0
    assert read_matrix(write(tmp_path, "0 0\n0 0\n"), 1_000)[0, 1] == MIN_US


def test_a_network_of_recorded_latencies() -> None:
    matrices = [read_matrix(file, S) for file in SEATTLE]
    topology = from_matrices(matrices, 8, seed=1, nearest=2, far=1)
    assert topology.is_connected
    assert 7 <= len(topology.spans) <= 24
    span = topology.spans[0]
    one, other = int(span.one[1:]), int(span.other[1:])
    assert span.series == tuple(round(float(matrix[one, other])) for matrix in matrices)
    assert span.delay_us == sorted(span.series)[1]


def test_some_nodes_are_chosen_by_the_seed() -> None:
    matrices = [read_matrix(SEATTLE[0], S)]
    some = from_matrices(matrices, 4, seed=1)
    assert len(some.nodes) == 4
    assert some.is_connected
    assert some.spans == from_matrices(matrices, 4, seed=1).spans
    assert any(from_matrices(matrices, 4, seed=seed).spans != some.spans for seed in range(2, 6))


def test_without_more_links_it_is_the_shortest_tree(tmp_path: Path) -> None:
    file = write(tmp_path, "0 2 8 8\n2 0 4 8\n8 4 0 6\n8 8 6 0\n")
    tree = from_matrices([read_matrix(file, 1_000)], 4, seed=1, nearest=0, far=0)
    assert [(span.one, span.other) for span in tree.spans] == [
        ("n0", "n1"),
        ("n1", "n2"),
        ("n2", "n3"),
    ]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("0 1\n1 x\n", ":2", "expected a number of at least 0, got 'x'"),
        ("0 1\n1 -2\n", ":2", "expected a number of at least 0, got '-2'"),
        ("0 nan\n1 0\n", ":1", "got 'nan'"),
        ("0 1\n1\n", ":2", "expected 2 values as in the first line, got 1"),
        ("0 1 2\n1 0 2\n", "", "expected as many lines as columns, got 2 × 3"),
        ("", "", "got 0 × 0"),
        ("0 1e9\n1 0\n", "", "below an hour: is the unit right?"),
    ],
)
def test_mistakes_in_a_matrix(tmp_path: Path, text: str, place: str, problem: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(GraphError) as caught:
        read_matrix(file, 1_000_000)
    assert caught.value.place == f"{file}{place}"
    assert problem in caught.value.problem


def test_matrices_that_do_not_fit() -> None:
    matrix = read_matrix(SEATTLE[0], S)
    with pytest.raises(GraphError, match="expected 2 to 8 nodes, got 9"):
        from_matrices([matrix], 9, seed=1)
    with pytest.raises(GraphError, match="as many nodes as the first"):
        from_matrices([matrix, matrix[:4, :4]], 2, seed=1)
    with pytest.raises(GraphError, match="1 to 1000 files, got 0"):
        from_matrices([], 2, seed=1)


def test_a_series(tmp_path: Path) -> None:
    assert read_series(write(tmp_path, "1.5\n2\n\n0.25\n"), 1_000) == (1_500, 2_000, 250)
    with pytest.raises(GraphError, match="expected 1 to 1000000 delays, got 0"):
        read_series(write(tmp_path, "\n"), 1_000)
    (tmp_path / "b").write_bytes(b"\xff")
    with pytest.raises(GraphError, match="expected numbers as text"):
        read_series(tmp_path / "b", 1)
