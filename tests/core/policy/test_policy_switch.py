from __future__ import annotations

from collections.abc import Generator

from hypothesis import given
from hypothesis import strategies as st
from tests.policy_strategies import CHANNELS, ENTITIES, POLICY_BOOKS

from accord.core.policy.policies import (
    NO_SIDE,
    Entity,
    Policies,
    compile_in_slices,
    resolve_in_slices,
)
from accord.core.policy.policy_set import PolicySet, policy_from, with_policy

BOOK = PolicySet(
    policies=tuple(
        policy_from({"name": f"p{number}", "client": f"c{number}", "importance": number % 8})
        for number in range(1_000)
    )
)


def finish(slices: Generator[None, None, Policies]) -> tuple[int, Policies]:
    count = 0
    while True:
        try:
            next(slices)
        except StopIteration as end:
            policies: Policies = end.value
            return count, policies
        count += 1


def test_compiling_takes_one_slice_after_the_other() -> None:
    count, policies = finish(compile_in_slices(BOOK, slice_size=100))
    assert count >= 18  # 10 to make them ready, 9 between those to index them
    assert len(policies.rules) == 1_000
    view = policies.view("report")
    assert view.grant(NO_SIDE, view.receiver(Entity("c6"))).importance == 6


def test_what_did_not_change_is_used_again() -> None:
    old = Policies(BOOK)
    changed = policy_from({"name": "p3", "client": "c3", "importance": 0})
    _, new = finish(compile_in_slices(with_policy(BOOK, changed), old))
    before = {rule.context.name: rule.context for rule in old.rules}
    others = [r.context.name for r in new.rules if r.context is not before[r.context.name]]
    assert others == ["p3"]
    view = new.view("report")
    assert view.grant(NO_SIDE, view.receiver(Entity("c3"))).importance == 0


@given(
    POLICY_BOOKS, POLICY_BOOKS, st.lists(st.tuples(st.sampled_from(CHANNELS), ENTITIES), max_size=9)
)
def test_in_slices_or_at_once_is_the_same(
    old_book: PolicySet, book: PolicySet, open_: list[tuple[str, Entity]]
) -> None:
    old, at_once = Policies(old_book), Policies(book)
    _, policies = finish(compile_in_slices(book, old, slice_size=2))
    assert policies.node_resources == at_once.node_resources
    assert policies.client_resources == at_once.client_resources
    for _, entity in open_:
        entity.holding = old.holding({"link_kbps": 300}, entity)
    holding = [entity.holding for _, entity in open_]
    assert len(list(resolve_in_slices(policies, open_, old, slice_size=2))) == len(open_) // 2
    assert [entity.holding for _, entity in open_] == holding
    for channel, entity in open_:
        entity.holding = policies.holding({"link_kbps": 300}, entity)
        view, other = policies.view(channel), at_once.view(channel)
        receiver, expected = view.receiver(entity), other.receiver(entity)
        assert view.grant(NO_SIDE, receiver) == other.grant(NO_SIDE, expected)
