"""Overlays in virtual time: what they deliver, and what that costs."""
