"""What strangers can cause as often as they like fills no log: some lines in each period, and a count of the others.

    limit = LimitedLines(log, "refused logins")
    log.log(limit.level("10.0.0.7", logging.WARNING), "login refused: …")
    12 more refused logins of 10.0.0.7 in 10 s                                  after the period, where there were more

Lines that are held back go out at level DEBUG.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from time import monotonic

PERIOD_S = 10.0
LINES_EACH = 5
"""Of one address, or whoever else is counted, in a period."""
LINES_OF_ALL = 50
"""Of all together; after the period no more lines than that say how many more there were."""
LONGEST_NAME = 200


class LimitedLines:
    """Chooses at which level a line is said."""

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        *,
        period_s: float = PERIOD_S,
        each: int = LINES_EACH,
        most: int = LINES_OF_ALL,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`what` are those that are counted, in the plural."""
        self._log = log
        self._what = what
        self._period_s = period_s
        self._each = each
        self._most = most
        self._clock = clock
        self._ends_at = clock()
        self._said: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._others = 0
        """Held back, of more different names than are counted."""
        self._level = logging.NOTSET

    def level(self, who: str, level: int) -> int:
        """Return the level for a line about somebody: the given one, or DEBUG."""
        now = self._clock()
        if now >= self._ends_at:
            self.tell()
            self._ends_at = now + self._period_s
            with contextlib.suppress(RuntimeError):  # without a loop the next line tells
                asyncio.get_running_loop().call_later(self._period_s, self.tell)
        who, self._level = who[:LONGEST_NAME], max(self._level, level)
        if self._said[who] < self._each and self._said.total() < self._most:
            self._said[who] += 1
            return level
        if who in self._held or len(self._held) < self._most:
            self._held[who] += 1
        else:
            self._others += 1
        return logging.DEBUG

    def tell(self) -> None:
        """Say how many were held back, and count anew."""
        held, others, level = self._held, self._others, self._level
        self._said, self._held, self._others, self._level = Counter(), Counter(), 0, logging.NOTSET
        for who, count in held.most_common():
            self._log.log(level, "%d more %s of %s in %g s", count, self._what, who, self._period_s)
        if others:
            self._log.log(level, "%d more %s of others in %g s", others, self._what, self._period_s)
