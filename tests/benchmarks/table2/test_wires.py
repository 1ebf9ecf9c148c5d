"""A link between namespaces: slow as it was made, and gone afterwards."""

from __future__ import annotations

import subprocess

import pytest

from benchmarks.table2 import wires


@pytest.fixture(autouse=True, scope="module")
def able() -> None:
    if reason := wires.missing():
        pytest.skip(reason)


def test_a_link_carries_no_more_than_its_rate_and_goes_away() -> None:
    with wires.wires([400]) as (wire,):
        made = wire.near[-1]
        assert made in namespaces()
        assert 0 < wire.measure(1.0) < 400 * 125 * 1.2
        wire.change(800)
    assert made not in namespaces()


def test_an_impossible_rate_is_an_error_and_leaves_nothing() -> None:
    before = namespaces()
    with pytest.raises(wires.WireError, match="tc"), wires.wires([0]):
        pass
    assert namespaces() == before


def namespaces() -> set[str]:
    command = ["ip", "netns", "list"]  # of the path, as the benchmark finds it
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    return {line.split()[0] for line in listed.stdout.splitlines() if line}
