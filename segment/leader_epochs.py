"""Leader epoch -> its first offset. (Skeleton.)"""

from __future__ import annotations


class LeaderEpochs:
    """See Log.offset_for_leader_epoch, Log.assign_leader_epoch, Log.latest_epoch."""

    __slots__ = ()
