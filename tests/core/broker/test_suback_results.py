from __future__ import annotations

import pytest

from accord.core.admission.resources import Resource
from accord.core.admission.subscription_requests import AdmissionRefusal
from accord.core.broker.subscription_admission import (
    admitted_result,
    amount_text,
    facts_of,
    refusal_text,
)


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        (Resource.BANDWIDTH, 0, "0 bit/s"),
        (Resource.BANDWIDTH, 999, "999 bit/s"),
        (Resource.BANDWIDTH, 92_980, "92.98 kbit/s"),
        (Resource.BANDWIDTH, 2.5e9, "2.5 Gbit/s"),
        (Resource.BANDWIDTH, -20_000, "-20 kbit/s"),
        (Resource.MEMORY, 14_096, "14.1 KB"),
        (Resource.CPU, 0.5, "0.5 events/s"),
    ],
)
def test_amounts_are_short(resource: Resource, amount: float, text: str) -> None:
    assert amount_text(resource, amount) == text


def test_facts_are_exact() -> None:
    refusal = AdmissionRefusal(
        "denver", Resource.BANDWIDTH, 123_456_789_012.0, 0.25, "client $share/a/b\0"
    )
    assert facts_of(refusal) == (
        ("node", "denver"),
        ("resource", "bandwidth"),
        ("of", "client $share/a/b"),
        ("asked", "123456789012"),
        ("free", "0.25"),
    )
    assert refusal_text(refusal).startswith(
        "node denver lacks bandwidth of client $share/a/b: 123.5"
    )


def test_silent_nodes_lack_nothing_in_particular() -> None:
    assert (
        refusal_text(AdmissionRefusal("denver", Resource.PATH, 0, 0))
        == "node denver does not answer"
    )


def test_shares_are_rounded() -> None:
    assert admitted_result(2 / 3).facts == (("admitted", "0.6667"),)
