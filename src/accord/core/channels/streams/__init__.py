"""Streams: numbered events of one source on one channel, buffered until all members have them."""
