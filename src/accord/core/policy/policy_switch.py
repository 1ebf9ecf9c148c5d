"""Switches to another policy set under load: preparation in slices, the switch itself at once.

The driver runs one slice per turn of its event loop. `compile_in_slices` compiles the new policies,
reusing what did not change; `resolve_in_slices` then resolves them for everything that is open.
After that only lookups remain.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final

from accord.core.policy.contexts import PolicyContext
from accord.core.policy.policies import NO_SIDE, Entity, Policies
from accord.core.policy.policy_set import PolicySet

SLICE: Final = 100


def compile_in_slices(
    book: PolicySet, previous: Policies | None = None, slice_size: int = SLICE
) -> Generator[None, None, Policies]:
    """Compiles the policies of `book`, a slice at a time."""
    known = {} if previous is None else {rule.context.name: rule.context for rule in previous.rules}
    contexts: list[PolicyContext] = []
    for number, policy in enumerate(book.policies, start=1):
        before = known.get(policy.name)
        is_known = before is not None and before.policy == policy
        contexts.append(before if before is not None and is_known else PolicyContext(policy))
        if number % slice_size == 0:
            yield
    policies = Policies(book, contexts, is_indexed=False)
    yield
    while policies.index(slice_size):
        yield
    return policies


def resolve_in_slices(
    policies: Policies,
    open_: Iterable[tuple[str, Entity]],
    previous: Policies | None = None,
    slice_size: int = SLICE,
) -> Iterator[None]:
    """Resolves `policies` for the entities that use these channels, a slice at a time.

    The conditions that hold for an entity are known as bits of the `previous` policies, if any.
    """
    for number, (channel, entity) in enumerate(open_, start=1):
        holding = entity.holding
        if previous is not None:
            holding = policies.carry(previous, holding)
        view = policies.view(channel)
        policies.holding({}, entity)
        asking = entity.with_holding(holding)
        view.grant(view.publisher(asking), NO_SIDE)
        view.grant(NO_SIDE, view.receiver(asking))
        if number % slice_size == 0:
            yield
