"""MQTT 5.0 and 3.1.1: bytes to packets, packets to bytes, and what they mean."""
