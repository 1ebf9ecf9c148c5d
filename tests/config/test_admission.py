from __future__ import annotations

import pytest

from accord.config import parse
from accord.config.errors import ConfigError
from accord.config.net import admission_options
from accord.core.admission.demand import Basis
from accord.core.admission.options import GuaranteeKind, Mode
from accord.runtime.admission import NodeAdmissionOptions


def options(text: str) -> NodeAdmissionOptions:
    return admission_options(parse(f"[admission]\n{text}").admission)


def test_it_is_off_unless_configured() -> None:
    assert options("").options.mode is Mode.OFF


def test_all_of_it() -> None:
    found = options("""
mode = "enforce"
guarantee = 0.75
basis = "estimate"
memory_bytes = "64 MB"
event_bytes = 200
link_bandwidth = "10 Mbit/s"
links = { denver = "56 kbit/s" }
""")
    assert found.options.mode is Mode.ENFORCE
    guarantee = found.options.guarantee
    assert (guarantee.kind, guarantee.percent) == (GuaranteeKind.PERCENTAGE, 75)
    assert guarantee.basis is Basis.ESTIMATE
    assert (found.memory_bytes, found.options.event_bytes) == (64_000_000, 200)
    assert (found.link_bps, found.links) == (10_000_000, {"denver": 56_000})
    assert options('guarantee = "none"').options.guarantee.kind is GuaranteeKind.NONE


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('mode = "on"', 'expected one of "enforce", "off", "report"'),
        ('guarantee = "half"', "share from 0 to 1"),
        ("guarantee = 2", "share from 0 to 1"),
        ("guarantee = true", "share from 0 to 1"),
        ('link_bandwidth = "fast"', "expected a bandwidth"),
        ("link_bandwidth = 100", "expected a bandwidth"),
        ('links = "10 Mbit/s"', "expected a table"),
        ("links = { denver = 5 }", "expected a bandwidth"),
        ("cpu_threshold = 0", "expected 0.05 to 1"),
    ],
)
def test_mistakes_are_said(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        options(text)
