"""Counted subscribers are those that a look at every subscription finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.channels import filter_selects
from accord.core.policy.entity import Entity
from accord.core.policy.policies import Policies
from accord.core.policy.policy_set import PolicySet
from accord.core.predicates.predicate import parse
from accord.core.router.fan_out import Receiver, RouterSubscription
from accord.core.router.router import Router
from accord.core.router.subscribers import SubscriberCounts, client_subscriptions

FILTERS = ("a/b", "a/+", "a/#", "#", "+/b", "c")
CHANNELS = ("a/b", "a/c", "c", "d/b", "a")
SUBSCRIPTIONS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from(FILTERS),
        st.sampled_from(("", "", "group")),
        st.sampled_from(("", "", "x > 1")),
        st.booleans(),
    ),
    max_size=60,
    unique_by=lambda each: each[:3],
)


@given(SUBSCRIPTIONS, st.sampled_from(((), ("a/b",))))
def test_counts_are_of_distinct_clients(
    wanted: list[tuple[int, str, str, str, bool]], denied: tuple[str, ...]
) -> None:
    router = Router([], Policies(PolicySet()))
    receivers = [Receiver(f"client-{n}", Entity(f"client-{n}")) for n in range(31)]
    receivers[0].is_remote = True
    made = []
    for number, pattern, group, where, is_denied in wanted:
        predicate = parse(where) if where else None
        each = RouterSubscription(
            receivers[number], pattern, group=group, predicate=predicate, where=where
        )
        each.denied = denied if is_denied else ()
        router.add(each)
        made.append(each)
    counts = SubscriberCounts(router)
    for channel in CHANNELS:
        selected = {
            each
            for each in made
            if filter_selects(each.pattern, channel)
            and not each.receiver.is_remote
            and not each.denies(channel)
        }
        assert set(client_subscriptions(router, channel)) == selected
        assert counts.count(channel) == len({each.receiver.name for each in selected})
