"""What administrators were told is done must be so at the end: nothing acknowledged is lost, nothing comes by itself.

Each thing that can be changed (a topic, a setting, a partition's replicas) is a register. What was written last stays;
of what ran at the same time, or was never answered, nobody knows when it happened, or whether.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Register = tuple[str, ...]
"""What kind of thing, and its name."""


@dataclass(slots=True)
class Attempt:
    """Something that was asked for: what each register holds when it is done."""

    wanted: Mapping[Register, Any]
    began_s: float
    acknowledged_s: float | None = None


class AcknowledgedChanges:
    """Remembers what was asked for and what was acknowledged, and says what a register may hold."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._attempts: list[Attempt] = []

    def begin(self, wanted: Mapping[Register, Any]) -> Attempt:
        """Somebody asks, once: who asks again may have it done twice, the second time after what others do."""
        attempt = Attempt(wanted, self._now())
        self._attempts.append(attempt)
        return attempt

    def acknowledge(self, attempt: Attempt) -> None:
        """It was said to be done."""
        attempt.acknowledged_s = self._now()

    def registers(self) -> list[Register]:
        """Return all of which something was acknowledged."""
        done = (each.wanted for each in self._attempts if each.acknowledged_s is not None)
        return list(dict.fromkeys(register for wanted in done for register in wanted))

    def possible(self, register: Register) -> list[Any]:
        """Return what it may hold: what was acknowledged and not replaced since, and what was never answered."""
        attempts = [each for each in self._attempts if register in each.wanted]
        done = [each for each in attempts if each.acknowledged_s is not None]
        latest_s = max((each.began_s for each in done), default=0.0)
        return [
            each.wanted[register] for each in attempts if each.acknowledged_s is None or each.acknowledged_s >= latest_s
        ]

    def lost(self, found: Callable[[Register], Any]) -> list[str]:
        """Compare with what is found, register by register; returns what is otherwise, in words."""
        wrong = []
        for register in self.registers():
            possible, value = self.possible(register), found(register)
            if value not in possible:
                wrong.append(f"{' '.join(register)} is {value}, acknowledged or asked for: {possible}")
        return wrong
