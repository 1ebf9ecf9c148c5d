"""Transports of links: TCP, TLS, WebSocket, datagrams and memory, on asyncio."""
