"""Kafka's messages, one module per API family; `kbroker.protocol.apis` loads them all."""
