"""Bars, and the groups of cases that can be asked for."""

from __future__ import annotations

import pytest
from benchmarks.aims import at_most

from benchmarks import __main__


def test_a_bar_says_what_was_measured_and_whether_that_is_enough() -> None:
    met = at_most("here", (0.05, "mosquitto"), 0.4, 10.0, "µs")
    assert (met.wanted, met.verdict) == ("≤ 0.05 × mosquitto", "met")
    assert met.measured == "0.400 of 10.0 µs: 0.040 ×"
    assert at_most("here", (0.05, "mosquitto"), 0.6, 10.0, "µs").verdict == "missed"
    assert at_most("here", (0.05, "mosquitto"), None, 10.0, "µs").verdict == "can't tell"


def test_an_unknown_group_of_cases_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        __main__.main(["brokers", "--cases", "predicate"])
    assert "got predicate" in capsys.readouterr().err
