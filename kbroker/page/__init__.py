"""The web page on any Kafka cluster: `kbroker page`. Views are in `*_views.py`, what they ask in `facts.py`."""
