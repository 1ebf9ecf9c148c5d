"""Admission at a node, for tests of the API and of commands: the worked example of the paper."""

from __future__ import annotations

from msgspec.structs import replace

from accord.core.admission.admission import Admission
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.resources import CPU, MEMORY, ReservationTable, client, link
from accord.core.admission.status import (
    AdmissionStatus,
    DemandStatus,
    FilterStatus,
    NodeBook,
    PublisherStatus,
    RefusalStatus,
    ReportedInterval,
    filter_statuses,
    pool_statuses,
    tightest_pools,
)
from accord.core.broker.refusal_remedies import answer_text
from accord.core.model.errors import AdmissionError
from accord.core.predicates.predicate import parse

ADVERTISED = (
    ("price > 0", 4.0),
    ("price > 3 AND name = 'DEU'", 4.0),
    ("price > 9", 4.0),
    ("price > 8 AND name = 'DEU'", 11.0),
    ("price > 5", 5.0),
)


def filters() -> tuple[FilterStatus, ...]:
    admission = Admission("denver", 1)
    for number, (where, rate_hz) in enumerate(ADVERTISED):
        admission.advertise("exchange", str(number), Filter("stock", parse(where)), rate_hz, 0)
    return tuple(filter_statuses(admission.poset, 100))[::-1]


def books() -> ReservationTable:
    books = ReservationTable()
    for pool, capacity in ((MEMORY, 10_000_000), (link("boston"), 100_000), (CPU, None)):
        books.set_capacity(pool, capacity)
    books.set_capacity(client("ann"), 50_000)
    assert books.reserve("one", {MEMORY: 8_192, CPU: 20_000, link("boston"): 100_000}) is None
    assert books.reserve("two", {MEMORY: 8_192, client("ann"): 20_000}) is None
    return books


def status(mode: str = "enforce") -> AdmissionStatus:
    return AdmissionStatus(
        node="denver",
        mode=mode,
        guarantee="full",
        basis="highest",
        advertisements=5,
        filters_total=5,
        filters=filters(),
        pools=tuple(pool_statuses("denver", books())),
        pools_total=4,
        publishers=(
            PublisherStatus(
                client="exchange",
                name="stock",
                channel="stock",
                where="",
                rate_hz=4,
                passed=1_200,
                limited=7,
            ),
        ),
        limited=7,
        subscriptions=2,
        decided={"admitted": 2, "refused": 1},
        refused={"bandwidth": 1},
        lately=(
            RefusalStatus(
                at_ms=1_700_000_000_000,
                client="bob",
                filter="stock",
                where="price > 2",
                problem="node denver lacks bandwidth of client bob: 160 kbit/s asked",
                is_binding=mode == "enforce",
            ),
        ),
    )


class FakeAdmission:
    mode = "dry run"
    version = 0
    admitting_now = None

    def __init__(self, mode: str = "enforce", *, is_secondary: bool = False) -> None:
        self.mode = mode
        self.is_secondary = is_secondary

    def status(self, most_pools: int | None = None) -> AdmissionStatus:
        found = replace(status(self.mode), filters=())
        if most_pools is None:
            return found
        return replace(found, pools=tightest_pools("denver", books(), most_pools))

    def book(self, pools: int, refusals: int) -> NodeBook:
        found = self.status(pools)
        return NodeBook(
            node="denver",
            mode=self.mode,
            subscriptions=found.subscriptions,
            refused=found.refused,
            pools_total=found.pools_total,
            pools=found.pools,
            lately=found.lately[:refusals],
        )

    async def show(self) -> AdmissionStatus:
        if self.is_secondary:
            return replace(status(self.mode), filters=(), filters_total=0, is_secondary=True)
        return status(self.mode)

    async def check(
        self, channel: str, where: str, client_: str = "", wanted_hz: float | None = None
    ) -> DemandStatus:
        if not channel:
            raise AdmissionError("channel", "expected one")
        parse(where or "TRUE")
        is_refused = client_ == "bob"
        found = DemandStatus(
            node="denver",
            mode=self.mode,
            guarantee="full",
            channel=channel,
            where=where,
            client=client_,
            rate_hz=ReportedInterval(low=18, high=31),
            count=ReportedInterval(low=3, high=6),
            paper_rate_hz=ReportedInterval(low=18, high=None),
            paper_count=ReportedInterval(low=3, high=None),
            is_advertised=False,
            estimate_hz=None,
            asked_hz=31,
            event_bytes=1_000,
            state="refused" if is_refused else "admitted",
            share=0.5 if is_refused else 1.0,
            problems=("node denver lacks memory: 1 MB asked, 2 KB free",) if is_refused else (),
            is_secondary=self.is_secondary,
            wanted_hz=wanted_hz,
        )
        return replace(found, answer=answer_text(found))
