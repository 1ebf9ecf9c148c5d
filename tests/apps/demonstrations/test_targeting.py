"""The paper's scenario: who publishes how much, and what the phases change."""

from __future__ import annotations

from tests.apps.scenario_policies import granted, policies_by_phase

from accord.apps.demonstrations.targeting import (
    CAS_IMAGE,
    IMAGERY,
    LIMIT_KBPS,
    REPORT,
    REPORT_BYTES,
    TARGETING,
    TASKING,
    TRACKING,
    make_sources,
)


def test_about_a_megabit_on_five_channels() -> None:
    sources = make_sources(4.0)
    assert {source.channel for source in sources} == set(TARGETING.channels)
    assert {source.client for source in sources} == {
        "UAV-1", "UAV-2", "CAS-1", "PATROL-1", "PATROL-2", "C2",
    }  # fmt: skip
    kbps = sum(
        len(source.sample(number).payload) * 8 / 1_000 / source.period_s / 4
        for source in sources
        for number in range(4)
    )
    assert 1_000 < kbps < 1_100


def test_small_events_have_the_scenario_s_size_and_differ() -> None:
    for source in make_sources(0.1)[3:]:
        samples = [source.sample(number) for number in (0, 1, 50)]
        assert {len(sample.payload) for sample in samples} == {REPORT_BYTES}
        assert len({sample.payload for sample in samples}) > 1


def test_the_policies_are_those_of_the_paper() -> None:
    names = {policy.name for policy in policies_by_phase(TARGETING)[0].policies}
    assert names >= {"AllUAS", "BFTrack", "Report", "UASImgSub", "Patrol-1-Report"}


def test_five_importances_to_begin_with() -> None:
    book = policies_by_phase(TARGETING)[0]
    pairs = [(IMAGERY, "UAV-2"), (CAS_IMAGE, "CAS-1"), (REPORT, "PATROL-1"), (REPORT, "PATROL-2"),
             (TASKING, "C2"), (TRACKING, "PATROL-1")]  # fmt: skip
    assert [granted(book, *pair).importance for pair in pairs] == [2, 3, 4, 4, 5, 6]


def test_each_phase_changes_what_it_announces() -> None:
    first, second, third, fourth = policies_by_phase(TARGETING)
    assert first.bandwidth_bps is None
    assert second.bandwidth_bps == LIMIT_KBPS * 1_000
    assert granted(second, IMAGERY, "UAV-1").shaping in {"", "none"}
    assert granted(third, IMAGERY, "UAV-1").shaping == "scaling"
    assert granted(third, IMAGERY, "UAV-1").deadline_ms == 5_000
    assert granted(fourth, IMAGERY, "UAV-1").importance == 6
    assert granted(fourth, IMAGERY, "UAV-1").shaping == "scaling"
    assert granted(fourth, CAS_IMAGE, "CAS-1").importance == 1
    assert [granted(fourth, REPORT, who).importance for who in ("PATROL-1", "PATROL-2")] == [7, 4]
