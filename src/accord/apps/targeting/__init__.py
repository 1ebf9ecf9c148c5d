"""Time-critical targeting: the scenario of the paper on managed information, as real clients."""
