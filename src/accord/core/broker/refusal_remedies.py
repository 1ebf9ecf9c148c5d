"""What would have made a refused subscription fit, as facts and in words."""

from __future__ import annotations

from accord.core.admission.options import Mode
from accord.core.admission.reservation import ReservationState
from accord.core.admission.resources import Resource
from accord.core.admission.status import DemandStatus, ShortageStatus
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


def answer_text(need: DemandStatus) -> str:
    """Yes or no, and what decides."""
    at_rate = "" if need.wanted_hz is None else f" at {_rate(need.wanted_hz)}"
    if need.state == ReservationState.ADMITTED:
        return f"Yes{at_rate}: {_why_yes(need)}."
    if need.state == ReservationState.ASKING:
        return f"Not decided{at_rate}: the nodes on its path did not answer in time."
    if need.problems:
        problem = "; ".join(need.problems)
        most = "" if need.most_hz is None else f"; at most {_rate(need.most_hz)} fit"
        return f"No{at_rate}: {problem}{most}."
    if need.most_hz is not None:
        return f"No{at_rate}: publishers advertise at most {_rate(need.most_hz)} of it."
    return f"No{at_rate}: not enough of the nodes on its path have room."


def _why_yes(need: DemandStatus) -> str:
    promised_hz = need.promised_hz
    if promised_hz is not None and (need.wanted_hz is None or promised_hz >= need.wanted_hz):
        return f"{_rate(promised_hz)} of it are promised to {need.client} already"
    known = [(each, each.free) for each in need.needs if each.free is not None]
    if known:
        tightest, free = max(known, key=lambda each: each[0].asked / max(each[1], 1e-9))
        asked, left = (amount_text(tightest.resource, each) for each in (tightest.asked, free))
        of = f" of {tightest.of}" if tightest.of else f" of {need.node}"
        why = f"it takes {asked} of the {left} of {tightest.resource}{of} that are free"
    else:
        why = "nothing is known that limits it"
    if need.mode == Mode.OFF:
        return f"{why}; admission is off, so everything is accepted and nothing is promised"
    if need.share < 1:
        return f"{why}; {100 * need.share:.0f} % of the nodes on its path carry it"
    if need.wanted_hz is not None and not need.count.high:
        return f"{why}; nobody advertises it, so no publisher promises that rate"
    return why


def _rate(rate_hz: float) -> str:
    return f"{rate_hz:,.4g} events/s"


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
