"""Answers about several channels have no more than the asker may see."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from accord.core.monitoring.measurement_registry import MeasurementRegistry, subject_of
from accord.core.queries.report import (
    SEVERAL,
    DeliveredQuality,
    Loss,
    NamedQuality,
    PairQuality,
    PredicateUse,
    Report,
    SourceUse,
)
from accord.core.router.rights import Rights
from accord.operations.ports import NodePorts
from tests.fake_admission import FakeAdmission
from tests.fake_node import FakeNode
from tests.operations import asking

NOW_MS = 1_000
BOB = Rights(subscribe=("uav/#",))
ANN = Rights(subscribe=("uav/#",), policies=True)


def a_report() -> Report:
    channels = ("uav/1", "secret/1")
    return Report(
        node="alpha",
        since_ms=0,
        until_ms=1,
        totals=DeliveredQuality(events=7),
        channels=tuple(NamedQuality(name=each) for each in (*channels, SEVERAL)),
        losses=tuple(
            Loss(outcome="shed", cause="", channel=each, events=1, clients=1, share=1, last_ms=1)
            for each in channels
        ),
        slow=tuple(PairQuality(client="c", channel=each) for each in channels),
        predicates=tuple(
            PredicateUse(
                channel=each, where="x > 1", xpath="", clients=1, seen=1, matched=1, bytes=1,
                selectivity=1, rate_hz=1, bytes_per_s=1,
            )
            for each in channels
        ),
        sources=tuple(SourceUse(publisher="p", channel=each) for each in channels),
    )  # fmt: skip


class Reports:
    """A pipeline that has made a report."""

    async def report(self, **_: object) -> bytes:
        return msgspec.json.encode(a_report())


def ask(topic: str, request: dict[str, Any], rights: Rights) -> dict[str, Any]:
    registry = MeasurementRegistry()
    for kind, subject in (
        ("channel", "uav/1"),
        ("channel", "secret/1"),
        ("predicate", subject_of("uav/+", "x > 1", "")),
        ("predicate", subject_of("secret/#", "x > 1", "")),
        ("publisher", subject_of("p", "uav/1")),
        ("publisher", subject_of("p", "secret/1")),
        ("node", "alpha"),
    ):
        registry.put(kind, subject, "rate_hz", 2.5, at_ms=NOW_MS)
    node = NodePorts(
        view=FakeNode(),
        admission=FakeAdmission(),
        pipeline=Reports(),  # type: ignore[arg-type]
        registry=registry,
        now_ms=lambda: NOW_MS,
    )
    return asking.ask(node, f"$accord/{topic}", request, rights=rights, user="bob", client="own")


def test_reports_name_no_other_channels() -> None:
    everything = ask("report", {"do": "get"}, ANN)
    assert "secret" in str(everything)
    report = ask("report", {"do": "get"}, BOB)
    assert "secret" not in str(report)
    assert [each["name"] for each in report["channels"]] == ["uav/1", SEVERAL]
    for part in ("losses", "slow", "predicates", "sources"):
        assert [each["channel"] for each in report[part]] == ["uav/1"]
    assert report["totals"]["events"] == 7


@pytest.mark.parametrize("channel", ["secret/1", "secret/#", "+/1"])
def test_reports_on_other_channels_are_refused(channel: str) -> None:
    refused = ask("report", {"do": "get", "channel": channel}, BOB)
    assert (refused["status"], refused["place"]) == (403, "channel")
    assert "status" not in ask("report", {"do": "get", "channel": "uav/#"}, BOB)


@pytest.mark.parametrize("kind", ["channel", "predicate", "publisher"])
def test_measurements_of_other_channels_are_left_out(kind: str) -> None:
    request = {"do": "list", "kind": kind}
    assert len(ask("registry", request, ANN)["values"]) == 2
    found = ask("registry", request, BOB)["values"]
    assert len(found) == 1
    assert "uav/" in found[0]["subject"]


def test_measurements_of_nodes_are_for_all() -> None:
    assert len(ask("registry", {"do": "list", "kind": "node"}, BOB)["values"]) == 1


def test_what_a_subscription_would_need_is_for_those_who_may_subscribe() -> None:
    need = {"do": "check", "channel": "secret/1"}
    refused = ask("admission", need, BOB)
    assert (refused["status"], refused["place"]) == (403, "channel")
    assert ask("admission", need, ANN)["channel"] == "secret/1"
    assert ask("admission", {"do": "check", "channel": "uav/1"}, BOB)["channel"] == "uav/1"


def test_what_another_client_would_need_takes_the_right_to_policies() -> None:
    need = {"do": "check", "channel": "uav/1", "client": "other"}
    refused = ask("admission", need, BOB)
    assert (refused["status"], refused["place"]) == (403, "client")
    assert ask("admission", need, ANN)["client"] == "other"
    assert ask("admission", {**need, "client": "own"}, BOB)["client"] == "own"
