"""Whole brokers, spoken to by clients and tools that others wrote."""
