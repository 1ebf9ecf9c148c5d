"""How the events of a channel get from node to node: templates, and what each channel uses."""
