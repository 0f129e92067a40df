"""`make demo`: it feeds a cluster, shows the page, and ends with Ctrl-C."""

import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from kbroker import Consumer
from tests.fixtures.package import ROOT

pytestmark = pytest.mark.slow
LIMIT_S = 60.0


def test_flights_flow_until_ctrl_c_and_the_page_shows_them() -> None:
    command = [sys.executable, "-m", "examples.demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"the page on (\S+) is at (\S+);", process.stdout.readline())
            assert found is not None
            with Consumer(found[1], auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["flights"])
                deadline = time.monotonic() + LIMIT_S
                while not consumer.poll(1.0):
                    assert time.monotonic() < deadline
            with urllib.request.urlopen(f"{found[2]}/topics/flights", timeout=LIMIT_S) as answer:
                assert b"flights" in answer.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 0
        finally:
            process.kill()
