"""What links run over: TCP and TLS, datagrams, and memory. On asyncio."""
