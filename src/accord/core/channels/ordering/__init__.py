"""Total order over the events of all sources of a channel."""
