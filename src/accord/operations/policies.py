"""Policies: read, change, try and explain them.

A change may name the version it is meant for (`if_version`, over HTTP the entity tag), so that two
administrators do not overwrite each other.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from accord.core.model.errors import AccordError, PolicyError
from accord.core.policy.dry_run import Affected
from accord.core.policy.explain import Explanation
from accord.core.policy.policy_parser import policy_from
from accord.core.policy.policy_set import (
    PolicySet,
    document,
    parse_policy_set,
    policy_document,
    policy_set_from,
    write_toml,
)
from accord.operations.operation import JSON, TOML, Answer, Asker, Request, Right, operation
from accord.operations.ports import NodePorts, PolicyPort, need

MAX_TEXT: Final = 5_000_000
MAX_CLIENTS: Final = 1_000
_TEXTS: Final = (JSON, TOML)

PolicyName = Annotated[str, Meta(description="Name of the policy.", examples=["Alarms"])]
PolicyDocument = Annotated[
    dict[str, Any],
    Meta(
        description="Fields of a policy, as in a policy file.",
        examples=[{"channel": "grid/+/alarm", "importance": 6}],
    ),
]
PolicySetDocument = Annotated[
    dict[str, Any],
    Meta(
        description="Strategy, shaping, limits and all policies, as in a policy file.",
        examples=[{"strategy": "weighted fair", "policies": []}],
    ),
]
IfVersion = Annotated[
    int | None, Meta(description="Version the change is meant for; refused if another is current.")
]


class ConflictError(AccordError):
    """A change was made for a version that is not the current one."""

    status = 412

    def __init__(self, wanted: int, current: int) -> None:
        self.requested = wanted
        self.current = current
        super().__init__(
            f"version {current} is current, and the change is for version {wanted}: "
            "look at what others have changed, and try again"
        )


class UnknownPolicyError(AccordError):
    """No policy has this name."""

    status = 404

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no policy {name!r}; `accord policy list` shows them")


class TooManyChangesError(AccordError):
    """Too many changes are queued."""

    status = 503

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} changes of policies are under way, try again later")


class Changed(Struct, frozen=True):
    """The version that is current now."""

    version: int


class CurrentPolicies(Struct, frozen=True, kw_only=True):
    """The current version: its whole policy set."""

    version: int
    policy_set: dict[str, Any]


class CurrentPolicy(Struct, frozen=True, kw_only=True):
    """One policy of the current version."""

    version: int
    policy: dict[str, Any]


class Version(Struct, frozen=True, kw_only=True):
    """Metadata of a version: its number, time, author and change."""

    version: int
    changed_ms: int = 0
    who: str = ""
    what: str = ""


class History(Struct, frozen=True):
    """Versions that can be restored, newest first."""

    history: tuple[Version, ...]


class DryRun(Struct, frozen=True, kw_only=True):
    """Effects of a change on open operations; lists the first affected ones."""

    version: int  # current at the time
    checked: int
    total: int
    affected: tuple[Affected, ...]


class GetPolicies(Request[CurrentPolicies], frozen=True, kw_only=True, tag="get"):
    pass


class GetPolicy(Request[CurrentPolicy], frozen=True, kw_only=True, tag="get policy"):
    name: PolicyName


class _SetRequest(Request[Answer], frozen=True, kw_only=True):
    policy_set: PolicySetDocument | None = None
    toml: Annotated[str | None, Meta(description="The same as the text of a policy file.")] = None

    async def read(self) -> PolicySet:
        """Parsed in a thread: there may be thousands of policies."""
        if (self.policy_set is None) == (self.toml is None):
            raise PolicyError("policy_set", "expected either policy_set or toml")
        if self.toml is not None:
            return await asyncio.to_thread(parse_policy_set, self.toml)
        return await asyncio.to_thread(policy_set_from, self.policy_set)


class PutPolicies(_SetRequest[Changed], frozen=True, kw_only=True, tag="put"):
    if_version: IfVersion = None


class DryRunPolicies(_SetRequest[DryRun], frozen=True, kw_only=True, tag="dry run"):
    pass


class PatchPolicies(Request[Changed], frozen=True, kw_only=True, tag="patch"):
    settings: Annotated[
        dict[str, Any],
        Meta(
            description="Any of strategy, shaping, bandwidth, client_bandwidth, weights, limits.",
            examples=[{"strategy": "strict"}],
        ),
    ]
    if_version: IfVersion = None


class LimitClients(Request[Changed], frozen=True, kw_only=True, tag="limit"):
    clients: Annotated[
        tuple[str, ...], Meta(min_length=1, max_length=MAX_CLIENTS, examples=[["patrol-1"]])
    ]
    bandwidth: Annotated[
        int | str | None,
        Meta(description="In bit/s, or such as `300 kbit/s`; null for none of their own."),
    ]
    if_version: IfVersion = None


class PutPolicy(Request[Changed], frozen=True, kw_only=True, tag="put policy"):
    policy: PolicyDocument
    name: Annotated[str | None, Meta(description="Name, if the policy has none inside.")] = None
    if_version: IfVersion = None


class RemovePolicy(Request[Changed], frozen=True, kw_only=True, tag="remove policy"):
    name: PolicyName
    if_version: IfVersion = None


class Rollback(Request[Changed], frozen=True, kw_only=True, tag="rollback"):
    version: Annotated[int, Meta(ge=0, le=1 << 53, description="The version to restore.")]
    if_version: IfVersion = None


class GetPolicyHistory(Request[History], frozen=True, kw_only=True, tag="history"):
    pass


class Explain(Request[Explanation], frozen=True, kw_only=True, tag="explain"):
    """The operation to explain: of an entity on a channel, optionally for a certain event.

    User and groups of a connected client are known and can be omitted.
    """

    operation: Annotated[str, Meta(examples=["subscribe"])]
    channel: Annotated[str, Meta(examples=["demo/feeder/F-21"])]
    client: str = ""
    user: str | None = None
    groups: tuple[str, ...] | None = None
    publisher: Annotated[str, Meta(description="Client whose events' deliveries are meant.")] = ""
    attributes: Annotated[
        dict[str, str | int | float | bool] | None, Meta(description="Strings as in an event.")
    ] = None
    payload_bytes: Annotated[int, Meta(ge=0, le=1 << 40)] | None = None
    resources: Annotated[
        dict[str, int | float] | None, Meta(description="Values of resources, if not the current.")
    ] = None


def _policies(node: NodePorts) -> PolicyPort:
    return need(node.policies, "policies")


@operation(
    "policies",
    "GET /policies",
    Right.POLICIES,
    entity="policy_set",
    media={TOML: lambda answer: write_toml(answer.policy_set)},
)
def get_policies(node: NodePorts, _ask: GetPolicies, _asker: Asker) -> CurrentPolicies:
    """Strategy, limits and policies that are current; as TOML if that is accepted."""
    policy_set = _policies(node).policy_set
    return CurrentPolicies(version=policy_set.version, policy_set=document(policy_set))


@operation("policies", "GET /policies/{name}", Right.POLICIES, entity="policy")
def get_policy(node: NodePorts, ask: GetPolicy, _asker: Asker) -> CurrentPolicy:
    """One policy by its name."""
    policy_set = _policies(node).policy_set
    policy = policy_set.policy(ask.name)
    if policy is None:
        raise UnknownPolicyError(ask.name)
    return CurrentPolicy(version=policy_set.version, policy=policy_document(policy))


@operation(
    "policies",
    "PUT /policies",
    Right.POLICIES,
    changes=True,
    entity="policy_set",
    body_media=_TEXTS,
    max_bytes=MAX_TEXT,
)
async def put_policies(node: NodePorts, ask: PutPolicies, asker: Asker) -> Changed:
    """Replace the whole policy set."""
    policy_set = await ask.read()
    admin = _policies(node)
    found = await admin.replace(policy_set, who=asker.who, if_version=ask.if_version)
    return Changed(found.version)


@operation(
    "policies",
    "PATCH /policies",
    Right.POLICIES,
    changes=True,
    entity="settings",
    body_media=_TEXTS,
    max_bytes=MAX_TEXT,
)
async def patch_policies(node: NodePorts, ask: PatchPolicies, asker: Asker) -> Changed:
    """Set some of strategy, shaping, bandwidth, client_bandwidth, weights, limits."""
    admin = _policies(node)
    found = await admin.patch(ask.settings, who=asker.who, if_version=ask.if_version)
    return Changed(found.version)


@operation("policies", "PUT /limits", Right.POLICIES, changes=True, max_bytes=MAX_TEXT)
async def limit_clients(node: NodePorts, ask: LimitClients, asker: Asker) -> Changed:
    """Limit the bandwidth of some clients, or lift their limits; others keep theirs."""
    found = await _policies(node).limit_clients(
        ask.clients, ask.bandwidth, who=asker.who, if_version=ask.if_version
    )
    return Changed(found.version)


@operation(
    "policies",
    "PUT /policies/{name}",
    Right.POLICIES,
    changes=True,
    entity="policy",
    body_media=_TEXTS,
    max_bytes=MAX_TEXT,
)
async def put_policy(node: NodePorts, ask: PutPolicy, asker: Asker) -> Changed:
    """Add a policy, or replace the one of this name."""
    policy = policy_from(ask.policy, name=ask.name)
    admin = _policies(node)
    found = await admin.put_policy(policy, who=asker.who, if_version=ask.if_version)
    return Changed(found.version)


@operation("policies", "DELETE /policies/{name}", Right.POLICIES, changes=True)
async def remove_policy(node: NodePorts, ask: RemovePolicy, asker: Asker) -> Changed:
    """Remove a policy."""
    admin = _policies(node)
    found = await admin.remove_policy(ask.name, who=asker.who, if_version=ask.if_version)
    return Changed(found.version)


@operation("policies", "POST /policies/rollback", Right.POLICIES, changes=True, body_media=_TEXTS)
async def rollback(node: NodePorts, ask: Rollback, asker: Asker) -> Changed:
    """Restore an earlier version as a new one."""
    admin = _policies(node)
    found = await admin.rollback(ask.version, who=asker.who, if_version=ask.if_version)
    return Changed(found.version)


@operation("policies", "GET /policies/history", Right.POLICIES)
def policy_history(node: NodePorts, _ask: GetPolicyHistory, _asker: Asker) -> History:
    """The versions that are stored, and who made them."""
    return History(tuple(_policies(node).history()))


@operation(
    "policies",
    "POST /policies/dry-run",
    Right.POLICIES,
    entity="policy_set",
    body_media=_TEXTS,
    max_bytes=MAX_TEXT,
)
async def dry_run(node: NodePorts, ask: DryRunPolicies, _asker: Asker) -> DryRun:
    """The open operations that a policy set would affect, if it were put."""
    return await _policies(node).dry_run(await ask.read())


@operation(
    "policies",
    "GET /policies/explain",
    Right.POLICIES,
    aliases={"group": "groups", "attribute": "attributes"},
)
def explain(node: NodePorts, ask: Explain, _asker: Asker) -> Explanation:
    """The decision about an operation, the policies that made it, and why others did not apply."""
    return _policies(node).explain(ask)
