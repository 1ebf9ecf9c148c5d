"""Options of admission control, and the guarantee that a client gets."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from accord.core.admission.demand import Basis
from accord.core.admission.reservation import ReservationTimers
from accord.core.model.errors import AdmissionError


class Mode(StrEnum):
    OFF = "off"
    REPORT = "report"  # decides, but does not enforce
    ENFORCE = "enforce"


class GuaranteeKind(StrEnum):
    NONE = "none"  # best effort, without a reservation
    FULL = "full"  # all nodes on its paths must agree
    PERCENTAGE = "percentage"  # at least this percentage of them must agree


class Guarantee(Struct, frozen=True, kw_only=True):
    """The guarantee of a subscription; clients may get different ones."""

    kind: GuaranteeKind = GuaranteeKind.FULL
    percent: float = 100.0  # of the nodes on its paths, for PERCENTAGE
    basis: Basis = Basis.HIGHEST

    def __post_init__(self) -> None:
        if not 0 <= self.percent <= 100:
            raise AdmissionError("percent", f"expected 0 to 100, got {self.percent}")


class AdmissionOptions(Struct, frozen=True, kw_only=True):
    """Options of one node's admission control."""

    mode: Mode = Mode.ENFORCE
    guarantee: Guarantee = Guarantee()  # default
    event_bytes: int = 1_024  # event size if none was measured
    subscription_bytes: int = 4_096  # fixed memory per subscription
    queue_s: float = 1.0  # seconds of events expected to be queued for a client or link
    estimate_margin: float = 1.25  # factor on estimates
    cpu_threshold: float = 0.8  # utilisation from which the CPU counts as busy
    burst_s: float = 1.0  # a publisher's burst, in seconds of its rate
    notify_interval_us: int = 1_000_000  # minimum interval of notifications to a publisher
    reevaluation_delay_us: int = 1_000_000  # delay from a change to the re-evaluation
    advertisements: int = 4_000_000
    general_filters: int = (
        64  # general filters: not a conjunction of conditions on single attributes
    )
    timing: ReservationTimers = ReservationTimers()
