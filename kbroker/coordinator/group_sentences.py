"""What happens to a group, said in plain sentences: what, why, and what to change (pure; for group_story.py).

Names and reasons are the clients' own words: they are cut short, and nothing in them moves a terminal's cursor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

LONGEST_NAME = 120
LONGEST_REASON = 255
LONGEST_TOPIC = 249
MOST_NAMES = 10
"""A sentence is part of an answer, whose strings have at most 32,767 bytes."""
POLL_WORDS = ("poll timeout", "max.poll", "poll interval")
"""By these a client's own reason says that the application did not call poll in time (Java's, librdkafka's)."""


class Told(NamedTuple):
    """A sentence, and what to change so that it is not told again ("": nothing)."""

    what: str
    advice: str = ""


class Described(Protocol):
    """What a sentence says of a member, of either protocol."""

    member_id: str
    client_id: str
    client_host: str
    rebalance_timeout_ms: int


def shown(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a client's text as it may be printed."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return (
        cut
        if cut.isprintable()
        else "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in cut)
    )


def name_of(member: Described) -> str:
    """Name a member, its client and its machine."""
    host = shown(member.client_host.removeprefix("/"))
    client = (
        "" if not member.client_id or member.member_id.startswith(member.client_id) else f"{shown(member.client_id)}, "
    )
    return f"{shown(member.member_id)} ({client}{host})"


def seconds(ms: int) -> str:
    """Say how long: 0.3 s, 42 s, 7 min."""
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    return f"{round(ms / 1000)} s" if ms < 600_000 else f"{round(ms / 60_000)} min"


def _with_reason(what: str, reason: str) -> str:
    return f"{what}: {shown(reason, LONGEST_REASON)}" if reason else what


def joined(member: Described, reason: str = "", is_static: bool = False, gone_for_ms: int | None = None) -> Told:
    """A new member; `gone_for_ms`: since when a member of the same client is missing."""
    told = f"{name_of(member)} joined"
    if gone_for_ms is None or is_static:
        return Told(_with_reason(told, reason))
    return Told(
        _with_reason(f"{told}, {seconds(gone_for_ms)} after a member of the same client had gone", reason),
        "If that was a restart: give each member a group.instance.id of its own and restart it within its session "
        "timeout, then nobody rebalances.",
    )


def joined_again(member: Described, reason: str, leads: bool, is_changed: bool, topics: str = "") -> Told:
    """A member that wants another round; `topics`: of `other_topics`."""
    if topics:
        told = f"{name_of(member)} joined again for other topics: {topics}"
    elif is_changed:
        told = f"{name_of(member)} joined again with other words for its assignor, or other assignors"
    elif leads:
        told = f"{name_of(member)}, the leader, asked for a new assignment"
    else:
        told = f"{name_of(member)} joined again"
    if reason or not leads or is_changed:
        return Told(_with_reason(told, reason))
    return Told(f"{told}, as leaders do when topics come, go or grow")


def left(member: Described, reason: str = "") -> Told:
    """A member that said goodbye; not all clients say why, and some leave in silence when their poll comes late."""
    if not reason:
        return Told(
            f"{name_of(member)} left, and did not say why",
            "It was closed, or its poll came later than max.poll.interval.ms (now "
            f"{seconds(member.rebalance_timeout_ms)}), after which clients like librdkafka leave: its log says which.",
        )
    told = _with_reason(f"{name_of(member)} left", reason)
    if any(word in reason.lower() for word in POLL_WORDS):
        return Told(told, _poll_advice(member))
    return Told(told)


def expired(member: Described, session_timeout_ms: int, is_static: bool) -> Told:
    """A member that was not heard of."""
    told = (
        f"{name_of(member)} was expelled: it was not heard of for its session timeout of {seconds(session_timeout_ms)}"
    )
    if is_static:
        return Told(told, "If that was a restart: raise session.timeout.ms above the time that a restart takes.")
    return Told(
        told,
        "If it was killed: let it close its consumer, then the others need not wait for its session to end. If it "
        "lives: it stood still or was cut off for longer than session.timeout.ms; raise that.",
    )


def late(member: Described) -> Told:
    """A member that did not join again."""
    return _came_late(member, "did not join again")


def kept_partitions(member: Described) -> Told:
    """A member of the newer protocol that did not give up what it had to."""
    return _came_late(member, "did not give up partitions")


def _came_late(member: Described, what: str) -> Told:
    waited = seconds(member.rebalance_timeout_ms)
    return Told(f"{name_of(member)} was expelled: it {what} in {waited}, its poll came late", _poll_advice(member))


def _poll_advice(member: Described) -> str:
    return (
        f"Raise max.poll.interval.ms (the rebalance timeout, now {seconds(member.rebalance_timeout_ms)}) above the "
        "longest time between two polls, or lower max.poll.records so that there is less to do between them."
    )


def unsynced(members: Iterable[Described], timeout_ms: int) -> Told:
    """Members of a new generation that did not ask what they shall read."""
    late = list(members)
    names = ", ".join(name_of(member) for member in late[:MOST_NAMES])
    others = f" and {len(late) - MOST_NAMES} more" if len(late) > MOST_NAMES else ""
    return Told(
        f"{names}{others} did not ask for the assignment in {seconds(timeout_ms)} and had to go",
        "Look whether it stood still between joining and reading; its log says when it joined.",
    )


def no_room(member: Described, most: int) -> Told:
    """A member that a full group sends away."""
    return Told(
        f"{name_of(member)} was sent away: the group is full", f"Raise group.max.size of the brokers (now {most})."
    )


def too_large(most: int) -> Told:
    """A group that was read from the log and has too many members."""
    return Told(
        f"the group has more members than group.max.size, {most}", "Raise group.max.size on every broker alike."
    )


def came_back(instance_id: str, member: Described, former_id: str) -> Told:
    """A static member under a new id."""
    return Told(f"{shown(instance_id)} came back as {name_of(member)}; it was {shown(former_id)}")


def went_for_now(instance_id: str, session_timeout_ms: int) -> Told:
    """A static member of the newer protocol that will be back."""
    return Told(f"{shown(instance_id)} went for now: its partitions wait for it for {seconds(session_timeout_ms)}")


def subscribed_anew(member: Described, topics: str, reason: str = "") -> Told:
    """A member of the newer protocol that wants other topics (of `other_topics`), another assignor, or is elsewhere."""
    what = f"what it reads: {topics}" if topics else "its pattern, its assignor or its rack"
    return Told(_with_reason(f"{name_of(member)} changed {what}", reason))


def other_topics(before: Collection[str] | None, after: Collection[str] | None) -> str:
    """Name the topics that a member reads now and did not, and those that it reads no longer; "": they are the same,
    or not known (None).
    """
    if before is None or after is None:
        return ""
    came, went = (sorted(set(these).difference(others)) for these, others in ((after, before), (before, after)))
    parts = [f"{word} {_topics(names)}" for word, names in (("now also", came), ("no longer", went)) if names]
    return "; ".join(parts)


def _topics(names: Sequence[str]) -> str:
    """Name as many as there is room for, whole: who may not describe a topic sees no part of its name either."""
    told = [f"topic {shown(names[0], LONGEST_TOPIC)}"]
    for name in names[1:MOST_NAMES]:
        told.append(f"topic {shown(name, LONGEST_TOPIC)}")
        if sum(map(len, told)) > LONGEST_REASON:
            del told[-1]
            break
    more = len(names) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


def topics_changed(before: Mapping[str, tuple[bytes, int]], after: Mapping[str, tuple[bytes, int]]) -> Told:
    """Topics that the group reads came, went or grew: name -> (id, partitions)."""
    came = [name for name in after if name not in before]
    went = [name for name in before if name not in after]
    made_anew = [name for name in after if name in before and before[name][0] != after[name][0]]
    grew = [name for name in after if name in before and name not in made_anew and before[name] != after[name]]
    parts = [f"topic {name} came" for name in came]
    parts += [f"topic {name} was deleted or is read no longer" for name in went]
    parts += [f"topic {name} was made anew" for name in made_anew]
    parts += [f"topic {name} has {after[name][1]} partitions, it had {before[name][1]}" for name in grew]
    return Told(shown("; ".join(parts), 2 * LONGEST_REASON))


def may_read_others(member: Described) -> Told:
    """By the access rules of now a member's pattern means other topics."""
    return Told(f"{name_of(member)} may read other topics than before: access rules have changed")


def not_written(error: str) -> Told:
    """The assignment could not be stored."""
    return Told(
        f"the assignment could not be written: {error}",
        "Look at the replicas of __consumer_offsets: kbroker topic describe __consumer_offsets.",
    )


MIGRATED = Told("the group's members go on in the newer protocol (group.protocol=consumer)")
RETURNED = Told("the group came back from the newer protocol, as all its members speak the classic one")
MOVED_AWAY = "this broker ceased to coordinate the group, another one goes on"
CAME_HERE = Told("this broker coordinates the group again; what happened meanwhile, others tell")
