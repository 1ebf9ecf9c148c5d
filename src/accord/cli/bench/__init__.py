"""The `accord bench` command: a load of events over plain sockets, and its results."""
