"""What is counted of appends and fetches: by topic, and for the broker as a whole. Plain numbers, read at any time.

messages and bytes in    nothing is counted when a batch comes: they are what the log grew by since this broker
                         leads (`HostedPartition.appended_as_leader`), settled here when it leads no more
requests                 once for each topic of a Produce, once for each partition that a Fetch reads
"""

from __future__ import annotations


class Traffic:
    """The counters of one topic."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "settled",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        """By partitions that are led no more; so are `bytes_in`."""
        self.bytes_in = 0
        self.bytes_out = 0
        """To consumers."""
        self.bytes_rejected = 0
        self.produces = 0
        """Partitions that Produce requests named."""
        self.failed_produces = 0
        self.fetches = 0
        """Partitions that Fetch requests read."""
        self.failed_fetches = 0
        self.settled = 0
        """Grows before and after a partition's part comes here: odd meanwhile. Another thread reads again then."""

    def add(self, other: Traffic) -> None:
        """Take over what another one counted."""
        for name in self.__slots__:
            if name != "settled":
                setattr(self, name, getattr(self, name) + getattr(other, name))


class Totals:
    """The counters of a broker that no topic has."""

    __slots__ = (
        "expired_consumer_fetches",
        "expired_follower_fetches",
        "failed_isr_updates",
        "gone",
        "isr_expands",
        "isr_shrinks",
        "replicated_in",
        "replicated_out",
    )

    def __init__(self) -> None:
        self.gone = Traffic()
        """Of topics that are gone."""
        self.replicated_in = 0
        """Bytes appended as a follower."""
        self.replicated_out = 0
        """Bytes sent to followers."""
        self.isr_shrinks = 0
        """Changes of ISRs that leaders here asked for."""
        self.isr_expands = 0
        self.failed_isr_updates = 0
        self.expired_consumer_fetches = 0
        """Fetches that found too little for as long as they were to wait."""
        self.expired_follower_fetches = 0
