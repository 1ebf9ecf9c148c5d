"""Feedback to the source of an event."""
