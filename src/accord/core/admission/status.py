"""Status of admission control, as values that serialise to JSON.

Amounts are bytes of memory, events per second of CPU, bits per second of bandwidth; None: no known
limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import isfinite
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from accord.core.admission.demand import Interval
from accord.core.admission.filter_index.filters import covers
from accord.core.admission.filter_poset import PER_HZ, AdvertisedFilter, FilterPoset, to_hz
from accord.core.admission.resources import Pool, PoolState, ReservationTable, Resource

MAX_NAME_LENGTH: Final = 256  # of an advertisement


class FilterStatus(Struct, frozen=True, kw_only=True):
    """An advertised filter; `below` are the list indices of those that it directly covers.

    `rate_hz` and `count` are over all advertisements that it covers, its own included.
    """

    channel: str
    where: str
    rate_hz: float
    count: int
    own_rate_hz: float
    own_count: int
    below: tuple[int, ...] = ()


class PoolStatus(Struct, frozen=True, kw_only=True):
    """One resource of one node; `of` is the link or client whose bandwidth it is."""

    node: str
    resource: str
    of: str
    capacity: float | None
    promised: float
    used: float
    free: float | None
    promises: int


class ShortageStatus(Struct, frozen=True, kw_only=True):
    """What a node lacked, and what would have made the subscription fit.

    `of` is the link or client whose bandwidth it is. Of the resource `path`, the node did not
    answer.
    """

    node: str
    resource: str
    of: str
    asked: float
    free: float
    remedy: str


class NeedStatus(Struct, frozen=True, kw_only=True):
    """What a subscription takes of a resource of this node, and what is free of it."""

    resource: str
    of: str
    asked: float
    free: float | None


class RefusalStatus(Struct, frozen=True, kw_only=True):
    """A refused subscription; if not binding, it would have been refused."""

    at_ms: int
    client: str
    filter: str
    where: str
    problem: str
    is_binding: bool
    shortages: tuple[ShortageStatus, ...] = ()


class PublisherStatus(Struct, frozen=True, kw_only=True):
    """A local publisher's advertisement, with the events within and beyond its rate."""

    client: str
    name: str
    channel: str
    where: str
    rate_hz: float
    passed: int = 0
    limited: int = 0


class AdmissionStatus(Struct, frozen=True, kw_only=True):
    """Status of a node; `filters` are the widest of `filters_total`, or none if omitted."""

    node: str
    mode: str
    guarantee: str
    basis: str
    advertisements: int
    filters_total: int
    filters: tuple[FilterStatus, ...]
    pools: tuple[PoolStatus, ...]
    publishers: tuple[PublisherStatus, ...]
    limited: int  # events beyond the advertised rates
    subscriptions: int  # with a reservation
    decided: dict[str, int]  # count by decision
    refused: dict[str, int]  # count by the resource that was short
    lately: tuple[RefusalStatus, ...]
    is_secondary: bool = False  # only its parents know remote advertisements
    filters_version: int = 0  # increases with each change of an advertisement
    pools_total: int = 0  # of this node


class NodeBook(Struct, frozen=True, kw_only=True):
    """What a node has promised: the tightest of `pools_total` pools, and its latest refusals.

    `problem` says why nothing else is known of it.
    """

    node: str
    mode: str = ""
    guarantee: str = ""
    subscriptions: int = 0
    refused: dict[str, int] = {}
    pools_total: int = 0
    pools: tuple[PoolStatus, ...] = ()
    lately: tuple[RefusalStatus, ...] = ()
    problem: str = ""


class ReportedInterval(Struct, frozen=True, kw_only=True):
    low: float
    high: float | None  # None: unknown


class DemandStatus(Struct, frozen=True, kw_only=True):
    """The demand a subscription would have, and whether it would be admitted.

    Bounds always hold; the paper's interval may not; the estimate comes from measurements.
    """

    node: str
    mode: str
    guarantee: str
    channel: str
    where: str
    client: str
    rate_hz: ReportedInterval
    count: ReportedInterval
    paper_rate_hz: ReportedInterval
    paper_count: ReportedInterval
    is_advertised: bool
    estimate_hz: float | None
    asked_hz: float
    event_bytes: int
    state: str
    share: float
    problems: tuple[str, ...]
    shortages: tuple[ShortageStatus, ...] = ()
    needs: tuple[NeedStatus, ...] = ()
    is_secondary: bool = False  # rates of local advertisements; parents know the rest
    wanted_hz: float | None = None  # the rate that was asked for
    promised_hz: float | None = None  # what the client has of it already; None: nothing
    most_hz: float | None = None  # what fits of the wanted rate, if not all does
    answer: str = ""  # in a sentence


def reported_interval(between: Interval) -> ReportedInterval:
    return ReportedInterval(low=between.low, high=between.high if isfinite(between.high) else None)


def filter_statuses(poset: FilterPoset, limit: int) -> Iterator[FilterStatus]:
    """Yield the status of the first `limit` filters, last line first: narrow before wide.

    They are compared with each other only, because a filter may cover any number of others.
    """
    found = sorted(
        islice(poset, limit), key=lambda each: (-each.count, -each.rate_hz, str(each.filter))
    )
    covered: dict[int, set[int]] = {}  # by index, the indices of those that it covers
    for place in reversed(range(len(found))):
        filter_ = found[place].filter
        inside = {other for other in covered if covers(filter_, found[other].filter)}
        covered[place] = inside
        between = set[int]().union(*(covered[other] for other in inside))
        yield _filter_status(found[place], inside - between)


def need_status(pool: Pool, asked: int, free: int | None) -> NeedStatus:
    per_unit = PER_HZ if pool.resource == Resource.CPU else 1
    return NeedStatus(
        resource=str(pool.resource),
        of=pool.of,
        asked=asked / per_unit,
        free=None if free is None else free / per_unit,
    )


def visible_filters(
    filters: Sequence[FilterStatus], may_see: Callable[[str], bool]
) -> tuple[FilterStatus, ...]:
    """Leave out filters that the asker may not see: what they cover is below what covers them."""
    kept = [may_see(each.channel) for each in filters]
    if all(kept):
        return tuple(filters)
    covered: dict[int, set[int]] = {}
    for place in reversed(range(len(filters))):
        below = filters[place].below
        covered[place] = set(below).union(*(covered[other] for other in below))
    places = {
        place: new for new, place in enumerate(each for each, is_kept in enumerate(kept) if is_kept)
    }
    found = []
    for place in places:
        inside = {other for other in covered[place] if other in places}
        between = set[int]().union(*(covered[other] for other in inside))
        below = tuple(sorted(places[other] for other in inside - between))
        found.append(replace(filters[place], below=below))
    return tuple(found)


def _filter_status(each: AdvertisedFilter, below: set[int]) -> FilterStatus:
    where = str(each.filter.predicate)
    return FilterStatus(
        channel=each.filter.channel,
        where="" if where == "TRUE" else where,
        rate_hz=each.rate_hz,
        count=each.count,
        own_rate_hz=to_hz(each.own.rate),
        own_count=each.own.count,
        below=tuple(sorted(below)),
    )


def pool_statuses(node: str, table: ReservationTable) -> list[PoolStatus]:
    return [pool_status(node, pool, state) for pool, state in sorted(table.state().items())]


def tightest_pools(node: str, table: ReservationTable, most: int) -> tuple[PoolStatus, ...]:
    """The pools with the largest share of their capacity promised or used, these first."""
    return tuple(pool_status(node, pool, state) for pool, state in table.tightest(most).items())


def pool_status(node: str, pool: Pool, state: PoolState) -> PoolStatus:
    per_unit = PER_HZ if pool.resource == Resource.CPU else 1
    taken = max(state.reserved, state.used)
    return PoolStatus(
        node=node,
        resource=str(pool.resource),
        of=pool.of.replace("\0", ""),  # it marks names that no client has
        capacity=None if state.capacity is None else state.capacity / per_unit,
        promised=state.reserved / per_unit,
        used=state.used / per_unit,
        free=None if state.capacity is None else (state.capacity - taken) / per_unit,
        promises=state.reservations,
    )
