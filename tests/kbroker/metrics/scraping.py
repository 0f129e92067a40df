"""What is served, read as Prometheus reads it."""

from __future__ import annotations

import re
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from kbroker.dev.broker_process import BrokerProcess
from kbroker.metrics.exposition import Exposition
from kbroker.metrics.sources import Sources
from tests.fixtures.data_path import Played

DEADLINE_S = 60.0
METRICS_PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"

Labels = frozenset[tuple[str, str]]


class Scraped:
    """The samples of one scrape, or of several brokers'."""

    def __init__(self, *texts: str) -> None:
        """As Prometheus does, those of several brokers are told apart by a label `instance`."""
        self.samples: list[tuple[str, dict[str, str], float]] = [
            (sample.name, {**sample.labels, "instance": str(number)} if len(texts) > 1 else sample.labels, sample.value)
            for number, text in enumerate(texts)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

        self.by_name: dict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
        for name, labels, value in self.samples:
            self.by_name[name].append((labels, value))

    def find(self, name: str, **labels: str) -> list[float]:
        """The values of the samples that have these labels, and maybe others; "": those that do not have it."""
        return [
            value
            for found, has, value in self.samples
            if found == name and all(has.get(label, "") == wanted for label, wanted in labels.items())
        ]

    def value(self, name: str, **labels: str) -> float:
        """The only one."""
        (value,) = self.find(name, **labels)
        return value

    def labels(self, name: str) -> set[str]:
        """The names of the labels that its samples have."""
        return {label for found, has, _ in self.samples if found == name for label in has}


def fetch_text(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=DEADLINE_S) as answer:
        text: str = answer.read().decode()
        return text


def addresses(brokers: Iterable[BrokerProcess]) -> list[str]:
    return [broker.ready_info()["metrics"][0] for broker in brokers]


def scrape(*brokers: BrokerProcess) -> Scraped:
    return Scraped(*map(fetch_text, addresses(brokers)))


def watch(*addresses: str) -> Scraped:
    """Scrape what answers, with what Prometheus adds under the job that docs/metrics.md names: whether it did."""
    return Scraped(*map(_with_up, addresses))


def _with_up(address: str) -> str:
    (job,) = re.findall(r"job_name: (\S+)", METRICS_PAGE.read_text())
    try:
        return f'{fetch_text(address)}\n# TYPE up gauge\nup{{job="{job}"}} 1\n'
    except OSError:
        return f'# TYPE up gauge\nup{{job="{job}"}} 0\n'


def scrape_until(condition: Callable[[Scraped], bool], *brokers: BrokerProcess) -> Scraped:
    """Scrape until it holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition(scraped := scrape(*brokers)):
        assert time.monotonic() < deadline, "the metrics never said so"
        time.sleep(0.2)
    return scraped


def sources_of(played: Played, **parts: Any) -> Sources:
    """The sources of a broker without sockets and ZooKeeper."""
    services = SimpleNamespace(**{**vars(played.services), **parts})
    dispatcher = parts.get("dispatcher", SimpleNamespace(waiting=0))
    return Sources(services, parts.get("server"), dispatcher, None, lambda: 3)  # type: ignore[arg-type]


def collected(collect: Callable[[Sources, Exposition], None], sources: Sources) -> Scraped:
    """What one module adds."""
    out = Exposition()
    collect(sources, out)
    return Scraped(b"".join(out.chunks()).decode())
