"""Shapers: reduce an event to fit a preference or a link, one per kind of content."""
