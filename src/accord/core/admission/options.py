"""How a node admits subscriptions, and which guarantee a client gets."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from accord.core.admission.demand import Basis
from accord.core.admission.errors import AdmissionError
from accord.core.admission.reservation import ReservationTimers


class Mode(StrEnum):
    OFF = "off"
    REPORT = "report"  # says what it would have done
    ENFORCE = "enforce"


class GuaranteeKind(StrEnum):
    NONE = "none"  # carried as well as can be, nothing is promised
    FULL = "full"  # all nodes on the way must be able to carry it
    PERCENTAGE = "percentage"  # so many of them


class Guarantee(Struct, frozen=True, kw_only=True):
    """What is promised to a subscription; different clients may get different ones."""

    kind: GuaranteeKind = GuaranteeKind.FULL
    percent: float = 100.0  # of the nodes on the way, where that is its kind
    basis: Basis = Basis.HIGHEST

    def __post_init__(self) -> None:
        if not 0 <= self.percent <= 100:
            raise AdmissionError("percent", f"expected 0 to 100, got {self.percent}")


class AdmissionOptions(Struct, frozen=True, kw_only=True):
    mode: Mode = Mode.ENFORCE
    guarantee: Guarantee = Guarantee()  # where nothing else is said
    event_bytes: int = 1_024  # where nothing was measured
    subscription_bytes: int = 4_096  # memory that a subscription takes by itself
    queue_s: float = 1.0  # of its events are expected to wait for a client or link
    estimate_room: float = 1.25  # what an estimate is multiplied by
    cpu_threshold: float = 0.8  # from which use on the CPU counts as busy
    burst_s: float = 1.0  # in which a publisher may publish at once what it may in that time
    tell_us: int = 1_000_000  # between two complaints to a publisher
    settle_us: int = 1_000_000  # until subscriptions follow what was advertised since
    advertisements: int = 4_000_000
    odd_filters: int = 64  # that are no conjunctions of conditions on single attributes
    timing: ReservationTimers = ReservationTimers()
