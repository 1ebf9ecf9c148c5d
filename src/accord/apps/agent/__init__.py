"""An agent that adapts a running program to what is expected of the events it publishes."""
