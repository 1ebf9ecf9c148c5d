"""The client: typed events over any MQTT 5 broker, and predicates over Accord's nodes.

`machine` and the modules it uses are pure (no I/O, no clock); `session` drives it on asyncio, and
`sync` drives `session` on a background thread.
"""
