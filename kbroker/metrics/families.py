"""The metrics' declarations: name, type, labels, meaning. What is served and docs/metrics.md come from them.

    BYTES_IN = counter("kafka_server_brokertopicmetrics_bytesin_total", "Bytes …", "topic")

Names that Kafka's JMX metrics have are spelled as the usual exporters do: `kafka.server:type=BrokerTopicMetrics,
name=BytesInPerSec` is kafka_server_brokertopicmetrics_bytesin_total. Newer exporters keep the whole of Kafka's name
(…_bytesinpersec_total): `also` has the same samples served under such a second name.
"""

from __future__ import annotations

from dataclasses import dataclass

QUANTILE_LABELS = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One metric."""

    name: str
    kind: str
    """counter, gauge, summary, histogram or untyped, as Prometheus knows them."""
    help: str
    labels: tuple[str, ...]
    section: str
    """Of the page."""
    also: str = ""
    """The second name."""

    def header(self, name: str) -> str:
        """Return the lines before its samples, under one of its names."""
        return f"# HELP {name} {self.help}\n# TYPE {name} {self.kind}\n"

    def sample(self, value: float, *values: str) -> str:
        """Return the line of one sample; a value for each label, those that are "" left out."""
        return f"{self.name}{label_text(self.labels, values)} {number(value)}"


FAMILIES: dict[str, Family] = {}
"""By name, in the order of their declaration: that of the page and of what is served."""


class Section:
    """Declares the metrics of one section of the page."""

    def __init__(self, title: str) -> None:
        self._title = title

    def counter(self, name: str, help: str, *labels: str) -> Family:
        """Grows from 0 as long as the broker lives."""
        return self._declare(name, "counter", help, labels)

    def meter(self, name: str, help: str, *labels: str) -> Family:
        """A counter `name`_total, which exporters spell `name`persec_total, too."""
        return self._declare(f"{name}_total", "counter", help, labels, f"{name}persec_total")

    def gauge(self, name: str, help: str, *labels: str, also: str = "") -> Family:
        """As it is now."""
        return self._declare(name, "gauge", help, labels, also)

    def summary(self, name: str, help: str, *labels: str) -> Family:
        """Quantiles of the last five minutes, with _count and _sum since the start."""
        return self._declare(name, "summary", help, labels)

    def untyped(self, name: str, help: str, *labels: str) -> Family:
        """A counter whose name, as exporters spell it, does not end as those of counters have to."""
        return self._declare(name, "untyped", help, labels)

    def histogram(self, name: str, help: str, *labels: str) -> Family:
        """How many there were up to each of some bounds."""
        return self._declare(name, "histogram", help, labels)

    def _declare(self, name: str, kind: str, help: str, labels: tuple[str, ...], also: str = "") -> Family:
        assert name not in FAMILIES, name
        assert also not in {each.also for each in FAMILIES.values() if each.also}, also
        family = FAMILIES[name] = Family(name, kind, help, labels, self._title, also)
        return family


def label_text(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return `{name="value",…}`; nothing for no labels."""
    if not values:
        return ""
    pairs = [f'{label}="{escaped(value)}"' for label, value in zip(labels, values, strict=True) if value != ""]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def escaped(value: str) -> str:
    """Return a label's value as it stands between quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def number(value: float) -> str:
    """Return a value as Prometheus reads it."""
    if isinstance(value, int):  # True and False, too
        return str(int(value))
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
