"""Kafka's messages, one module per API family; `protocol.apis` loads them all."""
