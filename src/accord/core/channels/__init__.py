"""Distribution of channel events between nodes: templates, and their binding to channels."""
