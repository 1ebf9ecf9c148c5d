"""What `accord clients show` says of a client."""

from __future__ import annotations

import io

from rich.console import Console

from accord.cli.clients import ClientReport, draw_client
from accord.core.monitoring.statistics import ClientStatus
from accord.operations.clients import SubscriptionStatus
from accord.operations.deliveries import ClientChannel, GrantedPreferences


def drawn(report: ClientReport, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(draw_client(report))
    return out.getvalue()


def test_a_client_with_a_line_per_channel() -> None:
    report = ClientReport(
        ClientStatus(client="patrol-1", is_connected=True),
        (SubscriptionStatus(filter="uav/#", qos=1),),
        1_700_000_000_000,
        {
            "uav/imagery": ClientChannel(
                sources=("raven-7", "raven-9"),
                sources_total=4,
                importance=2,
                policy="Thin-Link",
                preferences=GrantedPreferences(deadline_ms=5_000, shaping="scaling"),
                received=611,
                dropped=41,
                shaped=12,
                last_ms=1_700_000_000_000,
                rate_hz=0.6,
                p50_ms=840,
                p95_ms=2_800,
                in_time=0.9371,
            ),
            "patrol/report\x1b[31m": ClientChannel(importance=6, preset="FullImageNoDrop"),
        },
    )
    text = drawn(report)
    (imagery,) = (line for line in text.splitlines() if "uav/imagery" in line)
    for word in ("raven-7, raven-9 and 2 more", "Thin-Link", "within 5.00 s, scaling", "611", "41"):
        assert word in imagery
    assert "93.7 %" in imagery
    assert "FullImageNoDrop" in text
    assert "\x1b[31m" not in text
    narrow = drawn(report, 60)
    assert "611" in narrow
    assert max(map(len, narrow.splitlines())) <= 60


def test_a_client_that_got_nothing() -> None:
    report = ClientReport(ClientStatus(client="desk"), (), 0, {})
    assert "events since" not in drawn(report)
