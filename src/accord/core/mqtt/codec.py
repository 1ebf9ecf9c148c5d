"""Packet codec: `decoding` and `encoding` together."""

from __future__ import annotations

from accord.core.mqtt.decoding import SHARED, decode, problem_with_subscription
from accord.core.mqtt.encoding import encode

__all__ = ["SHARED", "decode", "encode", "problem_with_subscription"]
