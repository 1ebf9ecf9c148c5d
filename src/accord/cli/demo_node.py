"""The node of a demonstration, from its administrator's view."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Final
from urllib.parse import urlencode

import msgspec

from accord.apps.demonstrations.meters import LOSSES, OutcomeCount
from accord.apps.demonstrations.scenario import PolicyChange
from accord.cli.demo_process import DemoError, NodeProcess
from accord.cli.http_client import NodeHttpClient
from accord.http.ledger_schemas import LEDGER, DeliveryOutcome, DeliveryOutcomes
from accord.http.policy_schemas import JSON, POLICIES, TOML

_MOST: Final = 1_000
_CONFIG: Final = """
[node]
data = "data"
[listen]
mqtt = "127.0.0.1:0"
websocket = ""
http = "127.0.0.1:0"
[pipeline]
enabled = false
"""


class DemoNode(NodeProcess):
    """Runs until `stop`; policies and the ledger are accessed over HTTP, as by any client."""

    async def change(self, change: PolicyChange) -> None:
        is_toml = isinstance(change.body, str)
        body = change.body if isinstance(change.body, str) else json.dumps(change.body)
        answer = await asyncio.to_thread(
            self._http.ask,
            POLICIES + change.path,
            method=change.method,
            body=body.encode(),
            headers={"Content-Type": TOML if is_toml else JSON},
        )
        if answer.code >= 300:
            words = answer.body[:300].decode(errors="replace")
            raise DemoError(f"the node does not take its policies: {answer.code} {words}")

    async def outcomes(self, since_ms: int) -> Sequence[OutcomeCount]:
        query = urlencode({"since_ms": max(since_ms, 0), "limit": _MOST})
        answer = await asyncio.to_thread(self._http.ask, f"{LEDGER}?{query}")
        if answer.code != 200:
            raise DemoError(f"the node does not show its ledger: {answer.code}")
        outcomes = msgspec.json.decode(answer.body, type=DeliveryOutcomes).outcomes
        return [_outcome_count(each) for each in outcomes if each.outcome in {*LOSSES, *_ARRIVED}]

    @cached_property
    def _http(self) -> NodeHttpClient:
        return NodeHttpClient(self.http_url, None, None)


async def start_node() -> DemoNode:
    """Start the node; DemoError if it does not start."""
    return await DemoNode.start(_CONFIG)


_ARRIVED: Final = ("delivered", "late", "shaped")


def _outcome_count(outcome: DeliveryOutcome) -> OutcomeCount:
    return OutcomeCount(
        event=outcome.event,
        channel=outcome.channel,
        source=outcome.publisher,
        outcome=outcome.outcome,
        published_ms=outcome.received_ms,
        count=outcome.count,
        policy=outcome.policy,
        importance=outcome.importance,
    )
