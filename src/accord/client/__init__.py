"""The client: typed events over any MQTT 5 broker, and predicates over Accord's nodes.

`machine` and what it stands on are pure; `session` runs it on asyncio, `sync` that on a thread.
"""
