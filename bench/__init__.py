"""Measurements, beside Apache Kafka and other clients in one run; `python -m bench` runs them all."""
