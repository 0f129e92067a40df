"""Regular expressions that members subscribe with: RE2 syntax, matched against whole topic names (KIP-848).

RE2 needs time in proportion to the text, but an expression of a few bytes may need milliseconds for each name: each is
looked at once, and many of them by a thread: when a member brings an expression, or a group comes to this broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kbroker.protocol.errors import ErrorCode, KafkaError

MOST_MEMORY = 1 << 20
"""Bytes an expression may take when compiled."""


class Topic(Protocol):
    """What is asked of a topic in the metadata cache."""

    @property
    def topic_id(self) -> bytes:
        """Tells it from another one of the same name, earlier or later."""

    @property
    def partitions(self) -> Mapping[int, object]:
        """By number."""


class Topics(Protocol):
    """The metadata cache."""

    @property
    def updates(self) -> int:
        """Grows when anything may have changed."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """By name."""

    @property
    def names(self) -> frozenset[str]:
        """Of the topics: the same object as long as none comes or goes."""


class TopicPattern:
    """One expression and what it matched last. Raises KafkaError 128 for one that RE2 cannot read.

    `names`: of topics that are looked at now, which may take long.
    """

    def __init__(self, expression: str, names: Iterable[str] = ()) -> None:
        import re2  # few subscribe so: brokers start without it

        options = re2.Options()
        options.max_mem = MOST_MEMORY
        options.log_errors = False
        options.never_capture = True  # a search carries along what each group of the expression has caught
        try:
            self._pattern = re2.compile(expression, options)
        except re2.error as error:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION, f"{expression!r} is not an RE2 expression: {error}"
            ) from None
        self._names: frozenset[str] = frozenset()
        """What `_matched` is of: an object that all patterns share, as there may be thousands of both."""
        self._matched: frozenset[str] = frozenset()
        self._found = self.look_at(names)
        """Of names that are not among those yet."""

    def unseen(self, topics: Topics) -> list[str]:
        """Return the names that were not looked at yet."""
        if topics.names is self._names:
            return []
        return [name for name in topics.names if name not in self._names and name not in self._found]

    def look_at(self, names: Iterable[str]) -> dict[str, bool]:
        """Return which names match; a thread may do it, as nothing is remembered."""
        return {name: self._pattern.fullmatch(name) is not None for name in names}

    def learn(self, found: Mapping[str, bool]) -> None:
        """Remember what `look_at` found."""
        self._found.update(found)

    def matches(self, topics: Topics) -> frozenset[str]:
        """Return the names of the topics that match, internal ones too: as in Kafka, the expression alone decides."""
        names = topics.names
        if names is not self._names:
            self.learn(self.look_at(self.unseen(topics)))
            matched = self._matched & names
            new = frozenset(name for name, matches in self._found.items() if matches and name in names)
            if new or len(matched) < len(self._matched):
                self._matched = matched | new
            self._names, self._found = names, {}
        return self._matched
