"""What would have made a refused subscription fit, as facts and in words."""

from __future__ import annotations

from accord.core.admission.resources import Resource
from accord.core.admission.status import ShortageStatus
from accord.core.admission.subscription_requests import AdmissionRefusal
from accord.core.broker.subscription_admission import amount_text


def shortage_status(refusal: AdmissionRefusal) -> ShortageStatus:
    return ShortageStatus(
        node=refusal.node,
        resource=str(refusal.resource),
        of=refusal.of.replace("\0", ""),  # it marks names that no client has
        asked=refusal.requested,
        free=refusal.free,
        remedy=remedy_text(refusal),
    )


def remedy_text(refusal: AdmissionRefusal) -> str:
    """All that it asks for grows with its rate, so a share of the rate would fit."""
    node = refusal.node
    if refusal.resource is Resource.PATH:
        return f"node {node} has to answer: `accord net` shows its links"
    lacking = amount_text(refusal.resource, max(refusal.requested - refusal.free, 0))
    more = f"{lacking} more {_what(refusal)}"
    if refusal.free <= 0 or refusal.requested <= 0:
        return f"it takes {more}; nothing is free, so no condition makes it fit"
    if refusal.resource is Resource.CPU:
        least = f"at most {amount_text(refusal.resource, refusal.free)}"
    else:
        percent = 100 * refusal.free / refusal.requested
        least = f"at most {min(percent, 99.0):.3g} % of these events"
    return f"it takes {more}, or a condition that selects {least}"


def _what(refusal: AdmissionRefusal) -> str:
    node = refusal.node
    if refusal.resource is Resource.CPU:
        return f"of the CPU of {node}"
    if refusal.resource is Resource.MEMORY:
        share = f" for {refusal.of}" if refusal.of else ""
        return f"memory at {node}{share} (`memory_bytes` under [admission])"
    kind, _, name = refusal.of.replace("\0", "").partition(" ")
    if kind == "client":
        return f"bandwidth for client {name}: a higher limit in the policies, or a faster link"
    return f"bandwidth from {node} to {name or kind}"
