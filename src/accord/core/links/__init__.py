"""The link protocol between neighbouring nodes: handshake, frames, datagrams. No I/O."""
