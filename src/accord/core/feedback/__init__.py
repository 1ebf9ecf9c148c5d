"""Answers to the source of an event."""
