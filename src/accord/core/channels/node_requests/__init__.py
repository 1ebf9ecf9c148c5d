"""Requests that a node answers for another node of the network."""
