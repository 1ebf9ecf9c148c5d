"""What the ledger says of events that were sent after their deadline."""

from __future__ import annotations

import pytest

from accord.core.broker.broker import Broker
from accord.core.broker.delivery import ClientDelivery
from accord.core.broker.delivery_accounting import count_sent
from accord.core.broker.message import MqttMessage
from accord.core.monitoring.ledger import LATE, SHAPED
from accord.core.mqtt.properties import NO_PROPERTIES
from accord.core.policy.grants import Grant
from accord.core.router.limits import Limits

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("shaped_from", "outcome", "detail"),
    [(0, LATE, "deadline_ms=50"), (900, SHAPED, "from_bytes=900; deadline_ms=50")],
)
def test_what_arrives_late_has_its_deadline(shaped_from: int, outcome: int, detail: str) -> None:
    broker = Broker(Limits(), now_ms=NOW_MS, new_client_id=lambda: "x")
    message = MqttMessage(
        "uav/imagery", b"uav/imagery", b"image", 0, False, "raven-7", NOW_MS, NO_PROPERTIES, b"", 0
    )
    message.shaped_from = shaped_from
    grant = Grant(5, 50, "", 0, 0, False, "Imagery", deadline_policy="Deadline")
    entry = ClientDelivery(message, 0, False, (), 0, NOW_MS, grant)
    broker.context.now_ms = NOW_MS + 60
    count_sent(broker.context, None, "patrol-1", entry, 5, 60)
    batch = broker.context.ledger.take()
    assert batch is not None
    ((*_, found, _, _, _, _, _, told, _),) = batch.rows
    assert (found, told) == (outcome, detail)
