"""Information quality that is negotiated: what subscribers expect, what publishers can give."""
