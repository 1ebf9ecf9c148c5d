from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from tests.fake_net import five_cities
from tests.fake_node import FakeNode

from accord.http.metrics import exposition, registry_of

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape() -> Samples:
    text, _ = exposition(registry_of(FakeNode(), five_cities), "")
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def test_what_the_overlay_does_is_told() -> None:
    samples = scrape()
    for name, label, value in (
        ("nodes", ("state", "reachable"), 5),
        ("nodes", ("state", "unreachable"), 1),
        ("links_down", None, 1),
        ("interests_aggregated", None, 0),
        ("link_up", ("neighbour", "denver"), 1),
        ("link_latency_seconds", ("neighbour", "losangeles"), 0.04),
        ("link_loss", ("neighbour", "denver"), 0),
        ("flows", ("destination", "washington"), 1),
        ("flows_unmet", ("destination", "washington"), 1),
        ("routes", ("destination", "orlando"), 1),
        ("published_total", None, 1_007),
        ("retransmitted_total", None, 3),
        ("events_sent_total", None, 2_000),
        ("events_received_bytes_total", None, 5_000),
        ("lost_total", ("cause", "no route"), 2),
        ("lost_total", ("cause", "deadline passed"), 1),
        ("delivered_total", ("channel", "uav/#"), 12),
        ("late_total", ("channel", "uav/#"), 2),
    ):
        assert samples[f"accord_net_{name}", () if label is None else (label,)] == value


def test_each_node_tells_of_its_own_links_only() -> None:
    labels = {labels for name, labels in scrape() if name == "accord_net_link_up"}
    assert labels == {(("neighbour", "denver"),), (("neighbour", "losangeles"),)}


def test_a_node_that_has_no_others() -> None:
    text, _ = exposition(registry_of(FakeNode()), "")
    assert b"accord_net_" not in text
