"""`$accord/policies`: policy administration by MQTT clients.

A request is a JSON object whose `do` selects one of the structs below. The reply has `ok`, and if
that is false `error` and possibly `place`. A change may contain `if_version`; its reply contains
the new `version`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from accord.core.model.errors import AccordError, PolicyError
from accord.core.policy.policy_parser import policy_from
from accord.core.policy.policy_set import (
    PolicySet,
    document,
    parse_policy_set,
    policy_document,
    policy_set_from,
)
from accord.runtime.logs import get_log
from accord.runtime.policy_admin import MAX_TEXT, ExplainRequest, PolicyAdmin, UnknownPolicyError

log = get_log(__name__)

_LOCATION: Final = re.compile(r" - at `\$\.?(.*)`$")


class _Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    pass


class _Change(_Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    if_version: int | None = None


class Get(_Request, frozen=True, tag="get"):
    """Get the whole policy set, or one policy."""

    name: str | None = None


class Put(_Change, frozen=True, tag="put"):
    """Replace the whole policy set, given as JSON or as TOML text."""

    policy_set: dict[str, Any] | None = None
    toml: str | None = None


class Patch(_Change, frozen=True, tag="patch"):
    """Set some of strategy, shaping, bandwidth, client_bandwidth, weights, limits."""

    settings: dict[str, Any]


class PutPolicy(_Change, frozen=True, tag="put policy"):
    policy: dict[str, Any]


class RemovePolicy(_Change, frozen=True, tag="remove policy"):
    name: str


class Rollback(_Change, frozen=True, tag="rollback"):
    version: int


class GetPolicyHistory(_Request, frozen=True, tag="history"):
    pass


class DryRunPolicies(_Request, frozen=True, tag="dry run"):
    """Which open operations a policy set would affect."""

    policy_set: dict[str, Any] | None = None
    toml: str | None = None


class Explain(ExplainRequest, frozen=True, tag_field="do", tag="explain"):
    pass


Request = (
    Get
    | Put
    | Patch
    | PutPolicy
    | RemovePolicy
    | Rollback
    | GetPolicyHistory
    | DryRunPolicies
    | Explain
)
_DECODER: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)
_ACTIONS: Final = tuple(
    str(kind.__struct_config__.tag)
    for kind in (
        Get,
        Put,
        Patch,
        PutPolicy,
        RemovePolicy,
        Rollback,
        GetPolicyHistory,
        DryRunPolicies,
        Explain,
    )
)


async def handle_request(
    administration: PolicyAdmin, body: bytes, *, may_change: bool, who: str
) -> bytes:
    """The reply to a request of `who`; never raises."""
    try:
        if not may_change:
            raise PolicyError("request", "you may not see or change policies")
        result = await _act(administration, read_request(body), who)
    except PolicyError as error:
        result = {"ok": False, "error": error.problem, "place": error.place}
    except AccordError as error:
        result = {"ok": False, "error": str(error), "place": ""}
    except Exception as error:
        log.failure("request about policies failed", error, who=who)
        result = {"ok": False, "error": "failed; the log of the node says why", "place": ""}
    return msgspec.json.encode(result)


def read_request(body: bytes) -> Request:
    if len(body) > MAX_TEXT:
        raise PolicyError("request", f"expected at most {MAX_TEXT} bytes, got {len(body)}")
    try:
        return _DECODER.decode(body)
    except RecursionError:
        raise PolicyError("request", "JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise decoding_problem(error) from None


def decoding_problem(error: Exception, actions: Sequence[str] = _ACTIONS) -> PolicyError:
    """Converts a decoder's error to a PolicyError in this project's wording."""
    text = str(error)
    found = _LOCATION.search(text)
    place = (found[1] if found else "") or "request"
    if place == "do" or "missing required field `do`" in text:
        return PolicyError("do", f"expected one of {', '.join(actions)}")
    if "truncated" in text:
        return PolicyError("request", "expected a JSON object, got nothing or only a part of one")
    problem = _LOCATION.sub("", text).replace("`", "")
    is_name = problem[:2].isupper()  # such as JSON
    return PolicyError(place, problem if is_name else problem[:1].lower() + problem[1:])


async def _act(administration: PolicyAdmin, request: Request, who: str) -> dict[str, object]:
    match request:
        case Get():
            return {"ok": True, **_shown(administration.policy_set, request.name)}
        case GetPolicyHistory():
            return {"ok": True, "history": administration.history()}
        case DryRunPolicies():
            policy_set = await _read_policy_set(request.policy_set, request.toml)
            return {"ok": True, "dry_run": await administration.dry_run(policy_set)}
        case Explain():
            return {"ok": True, "explanation": administration.explain(request)}
        case _:
            policy_set = await _change(administration, request, who)
            return {"ok": True, "version": policy_set.version}


def _shown(policy_set: PolicySet, name: str | None) -> dict[str, object]:
    if name is None:
        return {"version": policy_set.version, "policy_set": document(policy_set)}
    policy = policy_set.policy(name)
    if policy is None:
        raise UnknownPolicyError(name)
    return {"version": policy_set.version, "policy": policy_document(policy)}


async def _change(
    administration: PolicyAdmin,
    request: Put | Patch | PutPolicy | RemovePolicy | Rollback,
    who: str,
) -> PolicySet:
    if_version = request.if_version
    match request:
        case Put():
            policy_set = await _read_policy_set(request.policy_set, request.toml)
            return await administration.replace(policy_set, who=who, if_version=if_version)
        case Patch(settings=settings):
            return await administration.patch(settings, who=who, if_version=if_version)
        case PutPolicy():
            policy = policy_from(request.policy)
            return await administration.put_policy(policy, who=who, if_version=if_version)
        case RemovePolicy(name=name):
            return await administration.remove_policy(name, who=who, if_version=if_version)
        case Rollback(version=version):
            return await administration.rollback(version, who=who, if_version=if_version)


async def _read_policy_set(policy_set: dict[str, Any] | None, toml: str | None) -> PolicySet:
    """Parsed in a thread: there may be thousands of policies."""
    if (policy_set is None) == (toml is None):
        raise PolicyError("policy_set", "expected either policy_set or toml")
    if toml is not None:
        return await asyncio.to_thread(parse_policy_set, toml)
    return await asyncio.to_thread(policy_set_from, policy_set)
