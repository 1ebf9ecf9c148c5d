"""The overlay of nodes: liveness, link state, replicated state, interests and routes."""
