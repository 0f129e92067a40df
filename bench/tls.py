"""TLS: throughput and the broker's CPU per GB, beside Apache Kafka with the same stores and the same clients.

Each system has two listeners, in clear and with TLS 1.3; Java's perf tools load one after the other.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.broker import RECORD, Figures, create_topic, produce
from bench.systems import System, run_java
from kbroker.dev.free_ports import free_ports

PASSWORD = "bench-bench"
RECORDS = 1_000_000
MB_PER_S = 3
"""Where ConsumerPerformance prints its rate."""


def make_stores(folder: Path) -> dict[str, str]:
    """Make a key store and a trust store with Java's keytool; returns the broker's settings."""
    key, trust, certificate = folder / "key.p12", folder / "trust.p12", folder / "broker.crt"
    store = ["-storepass", PASSWORD, "-noprompt"]
    names = ["-dname", "CN=localhost", "-ext", "SAN=DNS:localhost,IP:127.0.0.1"]
    for command in (
        ["-genkeypair", "-alias", "broker", "-keyalg", "EC", "-keystore", str(key), *names, *store],
        ["-exportcert", "-alias", "broker", "-file", str(certificate), "-keystore", str(key), *store],
        ["-importcert", "-alias", "broker", "-file", str(certificate), "-keystore", str(trust), *store],
    ):
        subprocess.run(["keytool", *command], check=True, capture_output=True, timeout=60)
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(key),
        "ssl.keystore.password": PASSWORD,
        **trusting(folder),
    }


def trusting(folder: Path) -> dict[str, str]:
    """Return the settings of a client."""
    return {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(folder / "trust.p12"),
        "ssl.truststore.password": PASSWORD,
    }


def consume(system: System, topic: str, records: int, settings: dict[str, str]) -> Figures:
    """Read the topic with ConsumerPerformance; returns MB/s and the broker's CPU seconds per GB."""
    file = system.folder / "consumer.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items() if key != "bootstrap.servers"))
    arguments = ["--topic", topic, "--messages", str(records), "--consumer.config", str(file), "--hide-header"]
    before = system.cpu_seconds()
    printed = run_java(
        "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", settings["bootstrap.servers"], *arguments
    )
    cpu = system.cpu_seconds() - before
    cells = printed.strip().splitlines()[-1].split(",")
    return {"MB/s": float(cells[MB_PER_S]), "CPU-s/GB": cpu / (records * RECORD / 1e9)}


def measure(kind: type[System], scale: float) -> dict[str, Figures]:
    """Produce and consume over TLS and in clear."""
    records = max(10_000, int(RECORDS * scale))
    system = kind()
    (port,) = free_ports(1)
    system.settings |= make_stores(system.folder)
    system.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{system.port},SSL://127.0.0.1:{port}"
    encrypted = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL", **trusting(system.folder)}
    rows: dict[str, Figures] = {}
    with system:
        for name, settings in (("TLS", encrypted), ("in clear", {"bootstrap.servers": system.bootstrap})):
            topic = name.lower().replace(" ", "-")
            create_topic(system, topic, 1)
            for warm in (True, False):
                produced = produce(system, topic, records // 4 if warm else records, **settings)
            rows[f"produce {name}"] = produced
            consume(system, topic, records // 4, settings)
            rows[f"consume {name}"] = consume(system, topic, records, settings)
    return rows
