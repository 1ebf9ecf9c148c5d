"""MQTT 5.0 and 3.1.1: decoding and encoding of packets, and their mapping to events."""
