"""Results of a SUBSCRIBE: refusals as text for operators and as facts for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from accord.core.admission.resources import Resource
from accord.core.admission.subscription_requests import AdmissionRefusal
from accord.core.model.units import BANDWIDTHS_BPS
from accord.core.mqtt.codes import Reason

Facts = tuple[tuple[str, str], ...]

ADMITTED: Final = "admitted"  # user property with the share of nodes that carry it
_SIZES: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class SubackResult(Struct, frozen=True):
    """The result for one filter of a SUBSCRIBE; `problem` is empty if it is accepted."""

    problem: str = ""
    facts: Facts = ()
    reason: Reason = Reason.QUOTA_EXCEEDED


ACCEPTED: Final = SubackResult()


def refused_result(refusal: AdmissionRefusal) -> SubackResult:
    return SubackResult(refusal_text(refusal), facts_of(refusal))


def admitted_result(share: float) -> SubackResult:
    return SubackResult("", ((ADMITTED, f"{share:.4g}"),))


def refusal_text(refusal: AdmissionRefusal) -> str:
    if refusal.resource is Resource.PATH:
        return f"node {refusal.node} does not answer"
    whose = f" of {_holder_name(refusal)}" if refusal.of else ""
    asked, free = (
        amount_text(refusal.resource, each) for each in (refusal.requested, refusal.free)
    )
    return f"node {refusal.node} lacks {refusal.resource}{whose}: {asked} asked, {free} free"


def amount_text(resource: str, amount: float) -> str:
    if resource == Resource.BANDWIDTH:
        return _with_unit(amount, BANDWIDTHS_BPS)
    if resource == Resource.MEMORY:
        return _with_unit(amount, _SIZES)
    return f"{amount:,.4g} events/s"


def facts_of(refusal: AdmissionRefusal) -> Facts:
    """Refusal facts; memory in bytes, CPU in events per second, bandwidth in bits per second."""
    named = [("node", refusal.node), ("resource", str(refusal.resource))]
    if refusal.of:
        named.append(("of", _holder_name(refusal)))
    return (*named, ("asked", f"{refusal.requested:.15g}"), ("free", f"{refusal.free:.15g}"))


def _holder_name(refusal: AdmissionRefusal) -> str:
    """The holder without the internal prefix."""
    return refusal.of.replace("\0", "")


def _with_unit(amount: float, units: Mapping[str, int]) -> str:
    """Format an amount in the largest unit of which it has at least one."""
    fitting = [(unit, factor) for unit, factor in units.items() if factor <= max(abs(amount), 1)]
    unit, factor = fitting[-1]
    return f"{amount / factor:.4g} {unit}"
