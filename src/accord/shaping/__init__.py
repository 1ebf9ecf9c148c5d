"""Shapers: what reduces an event to fit a preference or a link, each for its kind of content."""
