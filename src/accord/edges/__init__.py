"""Protocols towards clients and other nodes: codec and session, pure."""
