"""Measurements, beside Apache Kafka and other clients in one run; `python -m bench` runs them all."""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""A broker that is started compiles all that it loads where nothing compiled may be kept: nobody runs one so."""
