"""Histories written by hand: one line for each operation, with its beginning where that matters."""

from __future__ import annotations

from typing import Any

from kbroker.verify.anomalies import Finding
from kbroker.verify.checker import Settings, judge
from kbroker.verify.columns import Columns, columns_of
from kbroker.verify.history import INVOKE, OK, Event


class Written:
    """Collects events; times are the numbers of the lines, unless they are given."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def begin(self, process: Any, f: str, operations: list[Any], **more: Any) -> None:
        """An operation begins."""
        self._add(process, INVOKE, f, operations, more)

    def end(self, process: Any, f: str, operations: list[Any], type: str = OK, **more: Any) -> None:
        """It ends."""
        self._add(process, type, f, operations, more)

    def do(self, process: Any, f: str, operations: list[Any], type: str = OK, **more: Any) -> None:
        """It begins and ends."""
        self.begin(process, f, operations)
        self.end(process, f, operations, type, **more)

    def _add(self, process: Any, type: str, f: str, operations: list[Any], more: dict[str, Any]) -> None:
        time = more.pop("time", len(self.events))
        self.events.append(Event(len(self.events), process, type, f, operations, time, more))

    @property
    def columns(self) -> Columns:
        """As columns."""
        return columns_of(self.events)

    def findings(self, workload: str = "append", *, is_read_to_the_end: bool = True) -> dict[str, Finding]:
        """All that is found, what is allowed included."""
        judgement = judge(
            self.columns, Settings(workload, final_phase="complete" if is_read_to_the_end else "cut short")
        )
        return {each.name: each for each in (*judgement.anomalies, *judgement.allowed)}


def sent(key: str, *places: list[int]) -> list[Any]:
    """Sends of [offset, value]."""
    return [["send", key, place] for place in places]


def read(**partitions: list[list[int]]) -> list[Any]:
    """A read of [offset, value] by partition."""
    return [["poll", partitions]]
