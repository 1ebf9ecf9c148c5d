"""Changes a node's policies at run time, while traffic flows.

A change is validated, compiled, made durable and then switched to, one change at a time; a failure
on the way leaves everything as it was. Parsing and writing many policies takes a while and is done
in a thread; compiled policies belong to the event loop, which is yielded to between slices of work
on them.

Concurrent changes are detected by optimistic locking: a change made for version 7 (`if_version`)
raises `ConflictError` if that is no longer the current one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct

from accord.core.model.values import Value, infer
from accord.core.policy.dry_run import Affected, OpenOperation, find_affected
from accord.core.policy.explain import Explanation, explain
from accord.core.policy.grants import Grant
from accord.core.policy.policies import Entity, Policies, compile_in_slices, resolve_in_slices
from accord.core.policy.policy import Policy
from accord.core.policy.policy_set import (
    PolicySet,
    parse_stored_policy_set,
    render_policy_set,
    with_policy,
    with_settings,
    with_version,
    without_policy,
)
from accord.operations.policies import (
    ConflictError,
    DryRun,
    Explain,
    TooManyChangesError,
    UnknownPolicyError,
    Version,
)
from accord.runtime.logs import get_log
from accord.runtime.policy_store import PolicyStore
from accord.shaping.shaper_checks import check_shapers

log = get_log(__name__)

MAX_WAITING: Final = 16
MAX_OPEN: Final = 1_000_000
MAX_AFFECTED: Final = 1_000
_SLICE: Final = 100
_MAX_LISTED: Final = 8  # of the entries of a setting, in words


class PolicyHost(Struct, frozen=True, kw_only=True):
    """Callbacks into the node, all called on the event loop."""

    apply: Callable[[PolicySet, Policies], None] = lambda _book, _policies: None
    open_: Callable[[], Iterable[OpenOperation]] = lambda: ()
    find_entity: Callable[[str], Entity | None] = lambda _client: None
    resources: Callable[[str], Mapping[str, Value] | None] = lambda _client: None
    node: str = ""


class PolicyAdmin:
    """The policies of a running node, and their changes."""

    def __init__(
        self,
        policy_set: PolicySet,
        store: PolicyStore,
        host: PolicyHost | None = None,
        *,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.policy_set = policy_set
        self.policies = Policies(policy_set)
        self._store = store
        self._host = host or PolicyHost()
        self._now_ms = now_ms or wall_ms
        self._lock = asyncio.Lock()
        self._changes: set[asyncio.Task[PolicySet]] = set()

    def history(self) -> list[Version]:
        """All versions, newest first."""
        return self._store.history()

    async def replace(
        self, policy_set: PolicySet, *, who: str = "", if_version: int | None = None
    ) -> PolicySet:
        """Replace the whole policy set."""
        words = f"all replaced, {len(policy_set.policies)} policies"
        return await self._change(lambda _: policy_set, who, words, if_version)

    async def put_policy(
        self, policy: Policy, *, who: str = "", if_version: int | None = None
    ) -> PolicySet:
        """Add a policy, or replace the one of the same name in its position."""
        words = f"put policy {policy.name}"
        return await self._change(
            lambda policy_set: with_policy(policy_set, policy), who, words, if_version
        )

    async def remove_policy(
        self, name: str, *, who: str = "", if_version: int | None = None
    ) -> PolicySet:
        def edit(policy_set: PolicySet) -> PolicySet:
            if policy_set.policy(name) is None:
                raise UnknownPolicyError(name)
            return without_policy(policy_set, name)

        return await self._change(edit, who, f"removed policy {name}", if_version)

    async def patch(
        self, settings: Mapping[str, object], *, who: str = "", if_version: int | None = None
    ) -> PolicySet:
        """Set any of strategy, shaping, bandwidth, client_bandwidth, weights and limits."""
        words = ", ".join(f"{name} = {_brief(value)}" for name, value in settings.items())
        return await self._change(
            lambda policy_set: with_settings(policy_set, dict(settings)), who, words, if_version
        )

    async def limit_clients(
        self,
        clients: Iterable[str],
        bandwidth: object,
        *,
        who: str = "",
        if_version: int | None = None,
    ) -> PolicySet:
        """Set or, with None, lift the limits of `clients`; others keep theirs."""
        names = tuple(dict.fromkeys(clients))

        def edit(policy_set: PolicySet) -> PolicySet:
            limits: list[dict[str, object]] = [
                {"client": each.client, "bandwidth": each.bandwidth_bps}
                for each in policy_set.limits
                if each.client not in names
            ]
            if bandwidth is not None:
                limits += ({"client": name, "bandwidth": bandwidth} for name in names)
            return with_settings(policy_set, {"limits": limits})

        words = f"limit of {_brief(list(names)) if len(names) > 1 else names[0][:40]}"
        return await self._change(edit, who, f"{words} = {_brief(bandwidth)}", if_version)

    async def rollback(
        self, version: int, *, who: str = "", if_version: int | None = None
    ) -> PolicySet:
        """Restore an earlier version's content as a new version."""

        def edit(_: PolicySet) -> PolicySet:
            return parse_stored_policy_set(self._store.read(version))

        return await self._change(edit, who, f"back to version {version}", if_version)

    async def dry_run(self, policy_set: PolicySet) -> DryRun:
        """Which open operations `policy_set` would affect, and how."""
        check_shapers(policy_set)
        old = self.policies
        new = await self._compile(with_version(policy_set, self.policy_set.version + 1))
        found: list[Affected] = []
        total = 0
        everything = list(islice(self._host.open_(), MAX_OPEN))
        for start in range(0, len(everything), _SLICE):
            part = everything[start : start + _SLICE]
            some = find_affected(old, new, part)
            total += len(some)
            found += some[: MAX_AFFECTED - len(found)]
            await asyncio.sleep(0)
        return DryRun(
            version=old.policy_set.version,
            checked=len(everything),
            total=total,
            affected=tuple(found),
        )

    def explain(self, request: Explain) -> Explanation:
        """The decision, the policies that made it, and why others did not apply."""
        around = self._host
        entity = _entity(request, around)
        resources: Mapping[str, Value] | None = request.resources
        if resources is None:
            resources = around.resources(request.client)
        has_event = request.attributes is not None or request.payload_bytes is not None
        values: dict[str, Value] = {
            name: infer(value) if isinstance(value, str) else value
            for name, value in (request.attributes or {}).items()
        }
        publisher = None
        if request.publisher:
            publisher = around.find_entity(request.publisher) or Entity(
                request.publisher, "", (), around.node
            )
        return explain(
            self.policies,
            operation=request.operation,
            channel=request.channel,
            entity=entity,
            publisher=publisher,
            values=values if has_event else None,
            payload_bytes=request.payload_bytes or 0,
            resources=resources,
        )

    def query_grant(self, channel: str, entity: Entity) -> Grant:
        """The grant for a query on a filter of channels, under current resources."""
        policies = self.policies
        resources = self._host.resources(entity.client)
        if resources is not None:
            entity = entity.with_holding(policies.holding(resources))
        view = policies.view(channel)
        return view.publish_grant(view.query(entity))

    async def close(self) -> None:
        """Finish changes under way and release the directory."""
        await asyncio.gather(*self._changes, return_exceptions=True)
        self._store.close()

    async def _change(
        self, edit: Callable[[PolicySet], PolicySet], who: str, what: str, if_version: int | None
    ) -> PolicySet:
        if len(self._changes) >= MAX_WAITING:
            raise TooManyChangesError(MAX_WAITING)
        # Not cancelled with its requester: the change may already be on disk.
        task = asyncio.create_task(self._change_locked(edit, who, what, if_version))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _change_locked(
        self, edit: Callable[[PolicySet], PolicySet], who: str, what: str, if_version: int | None
    ) -> PolicySet:
        async with self._lock:
            current = self.policy_set
            if if_version is not None and if_version != current.version:
                raise ConflictError(if_version, current.version)
            number = max(current.version, self._store.last_number) + 1
            policy_set = with_version(await asyncio.to_thread(edit, current), number)
            if with_version(policy_set, current.version) == current:
                return current
            check_shapers(policy_set)
            policies = await self._compile(policy_set)
            await self._prepare(policies)
            version = Version(version=number, changed_ms=self._now_ms(), who=who, what=what)
            await asyncio.to_thread(self._write, version, policy_set)
            self.policy_set, self.policies = policy_set, policies
            log.info("policies: changed", version=number, who=who, what=what)
            self._host.apply(policy_set, policies)
            return policy_set

    def _write(self, version: Version, policy_set: PolicySet) -> None:
        self._store.write(version, render_policy_set(policy_set))

    async def _prepare(self, policies: Policies) -> None:
        """Evaluate `policies` for all open operations before switching to them."""
        open_ = ((each.channel, each.entity) for each in islice(self._host.open_(), MAX_OPEN))
        for _ in resolve_in_slices(policies, open_, self.policies):
            await asyncio.sleep(0)

    async def _compile(self, policy_set: PolicySet) -> Policies:
        slices = compile_in_slices(policy_set, self.policies)
        while True:
            try:
                next(slices)
            except StopIteration as end:
                policies: Policies = end.value
                return policies
            await asyncio.sleep(0)


def _entity(question: Explain, around: PolicyHost) -> Entity:
    known = around.find_entity(question.client) if question.client else None
    if known is None:
        known = Entity(question.client, "", (), around.node)
    if question.user is None and question.groups is None:
        return known
    user = known.user if question.user is None else question.user
    groups = known.groups if question.groups is None else question.groups
    return Entity(question.client, user, groups, known.node)


def _brief(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(str(each)[:40] for each in list(value.values())[:_MAX_LISTED])
    if isinstance(value, list):
        more = f" and {len(value) - _MAX_LISTED} more" if len(value) > _MAX_LISTED else ""
        return (", ".join(_brief(each) for each in value[:_MAX_LISTED]) or "none") + more
    return "none" if value is None else str(value)[:40]


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
