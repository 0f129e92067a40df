"""Stands between clients and any Kafka cluster, breaks links and lies; nothing is configured at the cluster."""
