"""Apache Kafka's broker as a child process, with the same directory and properties as one of ours.

Both read DIR/server.properties, keep their data in DIR/data and write to DIR/broker.log, so that one can take the
place of the other: stop this one, start that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kbroker.dev.broker_process import BrokerProcess

KAFKA = "kafka"
KBROKER = "kbroker"
HEAP = ("-Xmx400m", "-Xms128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
STARTED = "started (kafka.server.KafkaServer)"
LOGGING = """\
log4j.rootLogger=WARN, out
log4j.logger.kafka.server.KafkaServer=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class JavaBroker(BrokerProcess):
    """A broker of Apache Kafka 3.9.2."""

    def __init__(
        self, broker_id: int, directory: Path, port: int, properties: Mapping[str, str], class_path: str
    ) -> None:
        super().__init__(broker_id, directory, port, properties)
        self.class_path = class_path

    def command(self, properties_file: Path) -> list[str]:
        """What runs the broker."""
        logging = self.directory / "log4j.properties"
        logging.write_text(LOGGING)
        flags = [*HEAP, f"-Dlog4j.configuration={logging.as_uri()}", "-cp", self.class_path]
        return ["java", *flags, "kafka.Kafka", str(properties_file)]

    @property
    def is_ready(self) -> bool:
        """Whether the broker has said that it serves."""
        return self.is_running and STARTED in self.log_tail(10_000)
