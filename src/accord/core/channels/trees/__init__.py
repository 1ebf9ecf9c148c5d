"""Trees of nodes along which the events of channels travel."""
