"""Kafka's wire format: bytes to objects and back. No sockets, no files, no clocks."""
