"""What neighbouring nodes say to each other: handshake, frames, datagrams. Pure."""
