"""For how long a connection is not read."""

from types import SimpleNamespace
from typing import Any

from kbroker.network.muting import CLOCK_S, Muting


def test_a_longer_time_holds_before_a_shorter_one_and_both_end() -> None:
    now = 100.0
    loop: Any = SimpleNamespace(time=lambda: now)
    muting = Muting(loop)
    assert not muting.is_on()
    assert muting.extend(5) == 105
    assert muting.extend(1) == 105, "what was told before is kept"
    assert muting.is_on()
    now = 105 - CLOCK_S / 2
    assert not muting.is_on(), "timers may be early by as much"
    now = 100.0
    assert not muting.is_on(), "once it is over it is over"
