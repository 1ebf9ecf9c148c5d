"""What a viewer sees of negotiated quality at once: the expectations most in need first.

Only those shown are looked at in detail; of the others just the state last reported is read.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from msgspec import Struct

from accord.core.broker.client_negotiation import ClientNegotiation
from accord.core.broker.quality_status import expectation_status, profile_status, state_word
from accord.core.monitoring.table_window import Window, select_window
from accord.core.quality.client_quality import ClientExpectation
from accord.core.quality.local_profiles import LocalProfile
from accord.core.quality.status import ExpectationStatus, ProfileStatus

WORST_FIRST: Final = {"unsatisfied": 0, "satisfiable": 1, "suspended": 2, "satisfied": 3}

MaySee = Callable[[str], bool]


class QualityFilter(Struct, frozen=True, kw_only=True):
    """Which expectations and profiles are shown; of expectations the mismatches only, if wanted."""

    search: str = ""
    is_mismatch: bool = False
    limit: int = 200


def worst_expectations(
    quality: ClientNegotiation, wanted: QualityFilter, may_see: MaySee
) -> Window[tuple[ClientExpectation, ExpectationStatus]]:
    """The worst first; of equal ones those of the highest utility."""
    seen = [
        each
        for holder in quality.clients.values()
        for each in holder.expected.values()
        if may_see(each.expectation.channel)
        and not (wanted.is_mismatch and state_word(each) == "satisfied")
    ]
    # Sorting is stable: first by utility, then by state.
    seen.sort(key=attrgetter("expectation.utility"), reverse=True)
    found = select_window(
        seen,
        text=lambda each: f"{each.holder.client} {each.id} {each.expectation.channel}",
        key=lambda each: WORST_FIRST[state_word(each)],
        search=wanted.search,
        limit=wanted.limit,
    )
    rows = [(each, expectation_status(quality, each)) for each in found.rows]
    return Window(total=found.total, matching=found.matching, rows=rows)


def shown_profiles(
    quality: ClientNegotiation, wanted: QualityFilter, may_see: MaySee
) -> Window[tuple[LocalProfile, ProfileStatus]]:
    """Profiles by channel and publisher."""
    seen = [each for each in quality.negotiation.profiles if may_see(each.profile.channel)]
    found = select_window(
        seen,
        text=lambda each: f"{each.profile.publisher} {each.profile.channel}",
        key=lambda each: f"{each.profile.channel}\n{each.profile.publisher}",
        search=wanted.search,
        limit=wanted.limit,
    )
    rows = [(each, profile_status(quality, each)) for each in found.rows]
    return Window(total=found.total, matching=found.matching, rows=rows)
