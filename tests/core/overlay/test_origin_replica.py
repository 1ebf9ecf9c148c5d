from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.overlay.replica_set import (
    OriginReplica,
    delta_bytes,
    replica_from_snapshot,
    version_hash,
)
from accord.core.overlay.state_messages import StateRecord

# A key, and whether it is dropped or put; None: old tombstones are forgotten.
STEPS = st.lists(
    st.none() | st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=40
)


def grown(steps: list[tuple[str, bool] | None]) -> list[dict[str, bytes]]:
    """What was said after each version; 0 is before everything."""
    states: list[dict[str, bytes]] = [{}, {}]
    for step in steps:
        if step is not None:
            state = dict(states[-1])
            key, is_drop = step
            if is_drop:
                state.pop(key, None)
            else:
                state[key] = str(len(states)).encode()
            states.append(state)
    return states


def replay(steps: list[tuple[str, bool] | None]) -> OriginReplica:
    replica = OriginReplica("denver", (5, 1), 0, 0)
    for time_us, step in enumerate(steps):
        if step is None:
            replica.purge(time_us - 3, 2)
        else:
            key, is_drop = step
            version = replica.version + 1
            value = None if is_drop else str(version).encode()
            replica.set(StateRecord("link", key, value, version), time_us)
            replica.advance_to((5, version), time_us)
        replica.check_invariants()
    return replica


@given(STEPS, st.data())
def test_what_changed_since_a_version_leads_from_it_to_the_last(
    steps: list[tuple[str, bool] | None], data: st.DataObject
) -> None:
    origin, states = replay(steps), grown(steps)
    base = data.draw(st.integers(1, len(states) - 1))
    message = origin.delta_after(base)
    assert message.version == len(states) - 1
    assert message.base in (0, base)
    if message.base == 0:
        assert base < origin.floor or base == 0
        copy = replica_from_snapshot(message, 7)
        assert copy.floor == copy.version
    elif base == origin.version:
        assert message.records == ()
        return
    else:
        copy = replica_from_snapshot(replay(_first(steps, base)).delta_after(0), 7)
        before = dict(copy.values.get("link", {}))
        count, size = copy.growth(message.records)
        expected = len(copy) + count, copy.bytes + size
        changes = copy.apply(message, 8)
        assert (len(copy), copy.bytes) == expected
        for _, key, value in changes:
            assert before.get(key) != value
    copy.check_invariants()
    assert copy.values.get("link", {}) == states[-1] == origin.values.get("link", {})
    assert (copy.origin_version, copy.hash) == (origin.origin_version, origin.hash)


def _first(steps: list[tuple[str, bool] | None], version: int) -> list[tuple[str, bool] | None]:
    """The steps that lead to this version."""
    return [*[step for step in steps if step is not None][: version - 1]]


@given(STEPS, STEPS)
def test_the_difference_of_two_is_what_watchers_have_to_hear(
    one: list[tuple[str, bool] | None], other: list[tuple[str, bool] | None]
) -> None:
    before, after = replay(one), replay(other)
    seen = dict(before.values.get("link", {}))
    for _, key, value in after.changes_from(before):
        assert seen.get(key) != value
        if value is None:
            del seen[key]
        else:
            seen[key] = value
    assert seen == after.values.get("link", {})


def test_hashes_stay_the_same_from_release_to_release() -> None:
    assert version_hash("denver", (5, 1)) == 8342993763553610748
    assert version_hash("denver", (5, 1)) != version_hash("denver", (1, 5))


def test_sizes_are_about_right() -> None:
    replica = OriginReplica("denver", (5, 1), 0, 0)
    assert delta_bytes(replica.delta_after(0)) < 50
    replica.set(StateRecord("link", "a", b"x" * 1_000, 2), 0)
    replica.advance_to((5, 2), 0)
    assert 1_000 < delta_bytes(replica.delta_after(1)) < 1_100
    assert 1_000 < replica.bytes < 2_500
