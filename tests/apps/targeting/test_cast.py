"""Who takes part, and how much they offer."""

from __future__ import annotations

from accord.apps.targeting.cast import CHANNELS, FILM, REPORT_BYTES, film_for, make_cast


def test_about_a_megabit_on_five_channels() -> None:
    sources = make_cast(film=4)
    assert {source.channel for source in sources} == set(CHANNELS)
    assert {source.client for source in sources} == {
        "UAV-1", "UAV-2", "CAS-1", "PATROL-1", "PATROL-2", "C2",
    }  # fmt: skip
    kbps = sum(
        len(source.sample(number).payload) * 8 / 1_000 / source.period_s / 4
        for source in sources
        for number in range(4)
    )
    assert 1_000 < kbps < 1_100


def test_small_events_have_the_scenario_s_size_and_say_something_else_each_time() -> None:
    for source in make_cast(film=1)[3:]:
        samples = [source.sample(number) for number in (0, 1, 50)]
        assert {len(sample.payload) for sample in samples} == {REPORT_BYTES}
        assert len({sample.payload for sample in samples}) > 1


def test_no_more_is_painted_than_is_shown() -> None:
    assert film_for(8.0) == 7
    assert film_for(3_600.0) == FILM
