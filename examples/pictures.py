"""Draws the pictures of the page that the documentation shows: a real cluster, a real browser, light and dark.

    python -m examples.pictures        (or `make pictures`; three minutes, wants Chromium)

Three brokers get the flights of 2013 as if they left now; some groups read them, one of them slowly. Then each view is
photographed into docs/pictures, at last one on a phone while a broker is away.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo import flights_without_end
from kbroker import Admin, Consumer, Producer
from kbroker.dev.child_process import start_child
from kbroker.dev.cluster import DevCluster

if TYPE_CHECKING:
    from PIL import Image

PICTURES = Path("docs/pictures")
SCHEMES = ("light", "dark")
SCALE, COLOURS = 1.5, 128
"""What is flat and drawn needs no more; a picture is 50 KB then."""
DESKTOP, PHONE = (1080, 720), (390, 720)
SEEN_FOR_S = 130.0
"""How long the page looks at rates before the first picture."""
LIMIT_S = 60.0
WAVE_S = 70.0
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "flights": (12, {"retention.ms": "86400000", "min.insync.replicas": "2"}),
    "delays": (6, {"cleanup.policy": "compact"}),
    "airlines": (1, {"cleanup.policy": "compact"}),
    "gates": (4, {}),
    "weather": (3, {}),
}


@dataclass(frozen=True, slots=True)
class View:
    """What is photographed: an address of the page, what must be there first, and what is clicked."""

    name: str
    path: str
    shows: str
    click: str = ""
    size: tuple[int, int] = DESKTOP


VIEWS = (
    View("overview", "/", ".sparkline", size=(1080, 900)),
    View("topic", "/topics/flights", ".sparkline"),
    View(
        "messages",
        "/topics/flights/messages?where=value.dep_delay+%3E+60+and+headers.origin+%3D%3D+%22JFK%22&limit=12",
        "table[data-state=done] tr.record",
        "tr.record:nth-of-type(5) .open",
        size=(1080, 860),
    ),
    View("group", "/group?id=departures-board", ".story li", size=(1080, 800)),
)
AWAY = View("phone", "/", ".facts .bad", size=PHONE)


def feed(bootstrap: str, stop: threading.Event) -> None:
    """Send flights, now more and now fewer, and what follows from them."""
    flights = flights_without_end()
    started = time.monotonic()
    with Producer(bootstrap, compression="lz4") as producer:
        while not stop.wait(0.25):
            wave = 1 + 0.6 * math.sin(2 * math.pi * (time.monotonic() - started) / WAVE_S)
            for number in range(int(60 * wave)):
                _, value, headers = next(flights)
                row = json.loads(value)
                key = f"{row['carrier']}{row['flight']}".encode()
                producer.send("flights", key=key, value=value, headers=headers)
                if number % 8 == 0:
                    delay = json.dumps({"carrier": row["carrier"], "delay": row["dep_delay"]}).encode()
                    producer.send("delays", key=key, value=delay)
                    producer.send("gates", key=headers[0][1], value=key)


def read(bootstrap: str, group: str, client: str, until: threading.Event) -> None:
    """Read as a member of a group."""
    settings = {"group_id": group, "client_id": client, "auto_offset_reset": "earliest", "auto_commit_interval_ms": 500}
    with Consumer(bootstrap, **settings) as consumer:
        consumer.subscribe(["flights"])
        slow = group == "archive"
        while not until.is_set():
            consumer.poll(0.5, max_records=20 if slow else 5_000)
            if slow:
                until.wait(0.8)


def visit(bootstrap: str, stop: threading.Event) -> None:
    """Join the board for a while, and leave: the group has something to tell."""
    while not stop.wait(25):
        leaving = threading.Event()
        guest = threading.Thread(target=read, args=(bootstrap, "departures-board", "board-3", leaving))
        guest.start()
        stop.wait(25)
        leaving.set()
        guest.join()


@contextlib.contextmanager
def busy_cluster() -> Iterator[DevCluster]:
    """Three brokers with topics, one that feeds them, and groups that read."""
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="kbroker-") as folder:
        properties = {"zookeeper.session.timeout.ms": "6000", "offsets.topic.num.partitions": "6"}
        with DevCluster(folder, brokers=3, zookeeper="stand-in", properties=properties) as cluster:
            with Admin(cluster.bootstrap) as admin:
                for name, (partitions, configs) in TOPICS.items():
                    admin.create_topic(name, partitions, 3, configs)
            readers = (("departures-board", "board-1"), ("departures-board", "board-2"), ("archive", "archive-1"))
            jobs: list[tuple[Any, ...]] = [(feed, cluster.bootstrap), (visit, cluster.bootstrap)]
            jobs += [(read, cluster.bootstrap, group, client) for group, client in readers]
            threads = [threading.Thread(target=job, args=(*given, stop)) for job, *given in jobs]
            try:
                for thread in threads:
                    thread.start()
                yield cluster
            finally:
                stop.set()
                for thread in threads:
                    thread.join()


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come within {LIMIT_S:.0f} s")
        time.sleep(0.2)


@contextlib.contextmanager
def page_of(bootstrap: str) -> Iterator[str]:
    """Serve the page in a process of its own; gives its address."""
    command = [sys.executable, "-m", "kbroker", "page", "-b", bootstrap, "--listen", "127.0.0.1:0"]
    with tempfile.NamedTemporaryFile() as said:
        page = start_child(command, output=said.fileno())
        try:
            until(lambda: b"Ctrl-C" in Path(said.name).read_bytes(), "the page")
            yield re.findall(r"http://[^;\s]+", Path(said.name).read_text())[-1]
        finally:
            page.stop(LIMIT_S)


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A Chromium without a window."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        raise SystemExit("pictures are drawn by Chromium: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield started
    finally:
        started.quit()


def with_few_colours(drawn: Image.Image) -> Image.Image:
    """Keep the colours that most points have, so that what is flat stays as it is; all others become the nearest."""
    from PIL import Image

    counted: list[tuple[int, Any]] = drawn.getcolors(drawn.width * drawn.height) or []
    found = sorted(counted, reverse=True)
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in found[:COLOURS] for part in colour])
    return drawn.quantize(palette=palette, dither=Image.Dither.NONE)


def photograph(browser: Any, page: str, view: View) -> None:
    """Write a view's pictures, light and dark."""
    from PIL import Image

    width, height = view.size
    metrics = {"width": width, "height": height, "deviceScaleFactor": SCALE, "mobile": view.size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page + view.path)
    until(lambda: browser.find_elements("css selector", view.shows), view.name)
    if view.click:
        browser.find_element("css selector", view.click).click()
    for scheme in SCHEMES:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        small = with_few_colours(Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB"))
        file = PICTURES / f"{view.name}-{scheme}.png"
        small.save(file, optimize=True)
        print(f"{file}: {file.stat().st_size // 1024} KB", flush=True)


def main() -> None:
    """Draw them all."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with busy_cluster() as cluster, page_of(cluster.bootstrap) as page, chromium() as browser:
        print(f"{page} looks at the cluster for {SEEN_FOR_S:.0f} s", flush=True)
        time.sleep(SEEN_FOR_S)
        for view in VIEWS:
            photograph(browser, page, view)
        cluster.brokers[-1].kill()
        photograph(browser, page, AWAY)
        cluster.brokers[-1].restart(LIMIT_S)


if __name__ == "__main__":
    main()
