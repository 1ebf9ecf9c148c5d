"""Streams of chance are the same for the same names, and independent of each other."""

from __future__ import annotations

from accord.sim.clock import derive, stream


def test_a_stream_is_made_of_seed_and_names() -> None:
    assert stream(7, "link", "a>b").random() == stream(7, "link", "a>b").random()
    assert derive(7, "link", "a>b") != derive(8, "link", "a>b")
    assert derive(7, "link", "a>b") != derive(7, "link", "b>a")


def test_names_do_not_run_into_each_other() -> None:
    assert derive(1, "ab", "c") != derive(1, "a", "bc")


def test_it_is_the_same_in_every_process() -> None:
    assert derive(7, "link") == 10_220_382_645_011_045_314
