"""Whatever happens to nodes and links, all stores become what the nodes say."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from itertools import pairwise

import pytest
from tests.fact_network import KINDS, MS, FactNetwork, S

from accord.core.overlay.state_store import StateOptions

SEEDS = 240
BATCH = 30
ACTIVE_US = 4 * S
LONGEST_US = 600 * S
OPTIONS = (
    StateOptions(),
    StateOptions(tombstone_us=300 * MS, tombstones_limit=2),
    StateOptions(push_limit=1),
    StateOptions(requests_limit=1, reply_bytes=1, push_bytes=100),
    StateOptions(own_us=200 * MS, own_burst=1, flush_us=50 * MS),
)


def names_of(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def scenario(seed: int) -> FactNetwork:
    """A random network during a few seconds of changes and faults; then all of it is joined."""
    network = FactNetwork(seed, names_of(3 + seed % 6), OPTIONS[seed % len(OPTIONS)])
    random = network.random
    names = list(network.nodes)
    network.loss = (0.0, 0.1, 0.3, 0.5)[seed % 4]
    network.check_every = 1 if seed % 10 == 0 else 50
    wanted = [(names[random.randrange(at)], name) for at, name in enumerate(names) if at]
    wanted += [tuple(random.sample(names, 2)) for _ in range(len(names) // 2)]  # type: ignore[misc]
    side = {name: random.randrange(2) for name in names}

    def act() -> None:
        name = random.choice(names)
        kind, key = random.choice(KINDS), str(random.randrange(5))
        chance = random.random()
        if name not in network.nodes:
            if chance < 0.5:
                network.start(name)
        elif chance < 0.55:
            network.put(name, kind, key)
        elif chance < 0.75:
            network.drop(name, kind, key)
        elif chance < 0.80:
            network.crash(name)
        elif chance < 0.90:
            join(random.choice(wanted))
        elif chance < 0.97:
            network.cut(*random.choice(wanted))
        elif chance < 0.985:
            for one, other in wanted:
                if side[one] != side[other]:
                    network.cut(one, other)
        else:
            join_all()

    def join(pair: tuple[str, str]) -> None:
        if pair[0] in network.nodes and pair[1] in network.nodes:
            network.join(*pair)

    def join_all() -> None:
        for pair in wanted:
            join(pair)

    join_all()
    time_us = random.randrange(1, 60 * MS)
    while time_us < ACTIVE_US:
        network.at(time_us, act)
        time_us += random.randrange(1, 60 * MS)
    network.run(ACTIVE_US)
    for name in names:
        if name not in network.nodes:
            network.start(name)
    join_all()
    return network


@pytest.mark.parametrize("batch", range(SEEDS // BATCH))
def test_stores_become_equal_to_the_truth(batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        network = scenario(seed)
        assert network.run(ACTIVE_US + LONGEST_US, network.is_converged), f"seed {seed}"
        # What is on its way still may be answered; then only digests are left.
        network.run(network.now_us + 5 * S)
        network.sent.clear()
        network.run(network.now_us + 20 * S)
        assert list(network.sent) == ["StateDigest"], f"seed {seed}: {network.sent}"
        assert network.sent["StateDigest"] <= 2 * len(network.links) * 23, f"seed {seed}"
        assert network.is_converged(), f"seed {seed}"
        for node in network.nodes.values():
            node.store.check_invariants()
            assert node.store.counts.malformed == node.store.counts.refused == node.store.jumps == 0
            tombstones = node.store.tombstones
            assert tombstones <= len(network.nodes) * node.store.options.tombstones_limit
        if network.options.tombstone_us < S:
            assert not any(node.store.tombstones for node in network.nodes.values())


def test_the_same_seed_gives_the_same_run_in_every_process() -> None:
    """Neither the order of hashing nor anything else shows."""
    traces = set()
    for hash_seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", TRACE]
        traces.add(subprocess.check_output(command, env=environment, text=True))
    assert len(traces) == 1
    assert len(traces.pop().split()) == 2 == len({trace_hash(3), trace_hash(11)})


TRACE = """
import sys; sys.path.insert(0, ".")
from tests.core.overlay.test_facts_network import trace_hash
print(trace_hash(3), trace_hash(11))
"""


def trace_hash(seed: int) -> str:
    network = scenario(seed)
    network.run(ACTIVE_US + 10 * S)
    return sha256("\n".join(network.trace).encode()).hexdigest()


class ForgettingNetwork(FactNetwork):
    """Nodes tell of their links, forget who is unreachable for long, and recall who is not."""

    absent_us = 20 * S

    def start(self, name: str, incarnation: int | None = None) -> None:
        super().start(name, incarnation)
        store = self.nodes[name].store
        absent: dict[str, int] = {}

        def link_told(origin: str, neighbour: str, value: bytes | None) -> None:
            if value is not None and neighbour not in (origin, name):
                store.recall(neighbour)

        def sweep() -> None:
            reachable = [name]
            for each in reachable:
                for neighbour in store.of(each, "link"):
                    is_link = store.get(neighbour, "link", each) is not None
                    if is_link and neighbour not in reachable:
                        reachable.append(neighbour)
            for origin in store.origins():
                if origin in reachable:
                    absent.pop(origin, None)
                elif absent.setdefault(origin, self.now_us) + self.absent_us <= self.now_us:
                    del absent[origin]
                    store.expire(origin)
            self.at(self.now_us + 5 * S + int(self.random.random() * S), sweep)

        store.watch("link", link_told)
        self.at(self.now_us + int(self.random.random() * 5 * S), sweep)

    def join(self, one: str, other: str) -> None:
        super().join(one, other)
        self.put(one, "link", other)
        self.put(other, "link", one)

    def cut(self, one: str, other: str) -> None:
        super().cut(one, other)
        self.drop(one, "link", other)
        self.drop(other, "link", one)


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_sides_of_a_long_partition_forget_each_other_and_find_back(loss: float) -> None:
    for seed in range(10):
        names = names_of(8)
        network = ForgettingNetwork(seed, names)
        network.loss = loss
        for one, other in pairwise(names):
            network.join(one, other)
        network.join("n0", "n2")
        network.join("n5", "n7")
        for name in names:
            network.put(name, "need", "x")
        assert network.run(100 * S, network.is_converged)
        network.run(100 * S)
        network.cut("n3", "n4")
        network.run(200 * S)
        for name in names[:4]:
            assert sorted(network.nodes[name].store.origins()) == names[:4]
        for name in names[4:]:
            assert sorted(network.nodes[name].store.origins()) == names[4:]
        network.sent.clear()
        network.run(230 * S)
        assert list(network.sent) == ["StateDigest"], "nobody brings the forgotten back"
        network.join("n3", "n4")
        assert network.run(330 * S, network.is_converged), f"seed {seed}"
        network.run(network.now_us + 60 * S)
        assert network.is_converged(), f"seed {seed}"


def test_a_node_that_is_gone_for_good_is_forgotten_by_all() -> None:
    names = names_of(6)
    network = ForgettingNetwork(5, names)
    network.loss = 0.3
    for one, other in pairwise([*names, names[0]]):
        network.join(one, other)
    assert network.run(100 * S, network.is_converged)
    network.crash("n3")
    network.run(network.now_us + 200 * S)
    for node in network.nodes.values():
        assert sorted(node.store.origins()) == [name for name in names if name != "n3"]
    network.start("n3")
    network.join("n2", "n3")
    assert network.run(network.now_us + 100 * S, network.is_converged)


def test_a_change_reaches_forty_nodes_with_little_said() -> None:
    names = names_of(40)
    network = FactNetwork(1, names)
    network.check_every = 1_000_000
    random = network.random
    for at, name in enumerate(names):
        network.put(name, "need", "x")
        for other in random.sample(names[max(0, at - 10) : at], min(at, 2)):
            network.join(name, other)
    assert network.run(20 * S, network.is_converged)
    network.run(network.now_us + 2 * S)
    network.sent.clear()
    network.put("n20", "need", "x")
    start_us = network.now_us
    assert network.run(start_us + 10 * S, network.is_converged)
    network.run(network.now_us + S)
    assert network.sent["StateDelta"] <= 2 * len(network.links)
    for node in network.nodes.values():
        node.store.check_invariants()
