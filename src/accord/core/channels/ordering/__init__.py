"""One order for the events of all sources of a channel."""
