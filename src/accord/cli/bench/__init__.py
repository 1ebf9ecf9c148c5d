"""What `accord bench` does: a load of events over plain sockets, and what came of it."""
