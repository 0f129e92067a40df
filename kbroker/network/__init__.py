"""Bytes of clients in, bytes out: listeners, connections, frames, dispatch."""
