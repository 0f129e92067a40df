"""Clients of brokers: producer, consumer, administration, and the connections under them."""
