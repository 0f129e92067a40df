"""Edits of healthy histories: each puts one anomaly in, where the history has room for it, and says whether it did."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from kbroker.verify.history import FAIL, INVOKE, OK, Event

Events = list[Event]
Edit = Callable[[Events, random.Random], bool]
Sent = tuple[Event, list[Any]]
"""A completion, and one of its sends."""


def sends(events: Events, *kinds: str) -> list[Sent]:
    """Acknowledged sends."""
    return [
        (event, operation)
        for event in events
        if event.type == OK and event.f in kinds
        for operation in event.operations
        if operation[0] == "send"
    ]


def polls(events: Events) -> Iterator[tuple[Event, str, list[list[Any]]]]:
    """Each partition's records of each read."""
    for event in events:
        for operation in event.operations if event.type != INVOKE and event.f in ("poll", "txn") else ():
            if operation[0] == "poll" and len(operation) > 1:
                for key, places in operation[1].items():
                    yield event, key, places


def forget(events: Events, value: int, *, only_final: bool = False) -> None:
    """Nobody reads a value."""
    for event, _, places in polls(events):
        if not only_final or event.more.get("final"):
            places[:] = [place for place in places if place[1] != value]


def last_offsets(events: Events) -> dict[str, int]:
    """The highest offset that was read of each partition."""
    found: dict[str, int] = {}
    for _, key, places in polls(events):
        found[key] = max([found.get(key, -1), *(place[0] for place in places)])
    return found


def swap(events: Events, one: list[Any], other: list[Any]) -> None:
    """Two values of a partition change places, for everybody."""
    (first, value), (second, another) = one[2][:2], other[2][:2]
    offsets = {value: second, another: first}
    for event in events:
        for operation in event.operations if event.type != INVOKE else ():
            if operation[0] == "send" and isinstance(operation[2], list) and operation[2][1] in offsets:
                operation[2][0] = offsets[operation[2][1]]
    for _, key, places in polls(events):
        if key == one[1]:
            for place in places:
                place[0] = offsets.get(place[1], place[0])
            places.sort(key=lambda place: place[0])


def pick(rng: random.Random, found: list[Any]) -> Any:
    """One of several, or None."""
    return rng.choice(found) if found else None


def lost_write(events: Events, rng: random.Random) -> bool:
    """An acknowledged record is missing when all is read at the end."""
    last = last_offsets(events)
    chosen = pick(rng, [sent for sent in sends(events, "send") if sent[1][2][0] < last.get(sent[1][1], -1)])
    if chosen:
        forget(events, chosen[1][2][1], only_final=rng.random() < 0.5)
    return bool(chosen)


def unseen(events: Events, rng: random.Random) -> bool:
    """The last record of a partition is read by nobody."""
    last = last_offsets(events)
    chosen = pick(rng, [sent for sent in sends(events, "send") if sent[1][2][0] == last.get(sent[1][1])])
    if chosen:
        forget(events, chosen[1][2][1])
    return bool(chosen)


def duplicate(events: Events, rng: random.Random) -> bool:
    """A record is stored a second time, at the end."""
    chosen = pick(rng, [each for each in polls(events) if each[0].more.get("final") and each[2]])
    if not chosen:
        return False
    _, key, places = chosen
    final = [each[2] for each in polls(events) if each[0].more.get("final") and each[1] == key]
    final[-1].append([last_offsets(events)[key] + 3, *rng.choice(places)[1:]])
    return True


def inconsistent_offsets(events: Events, rng: random.Random) -> bool:
    """One reader finds another value at an offset."""
    found = [(places, key) for event, key, places in polls(events) if places and not event.more.get("final")]
    places, key = pick(rng, found) or (None, None)
    others = [place[1] for _, other, read in polls(events) for place in read if other == key]
    if places is None:
        return False
    place = rng.choice(places)
    value = pick(rng, [each for each in others if each != place[1]])
    if value is not None:
        place[1] = value
    return value is not None


def unexpected_value(events: Events, rng: random.Random) -> bool:
    """A reader finds what nobody sent."""
    places = pick(rng, [places for _, _, places in polls(events) if places])
    if places:
        rng.choice(places)[1] = 999_999
    return bool(places)


def _middle(events: Events, least: int) -> list[list[list[Any]]]:
    return [
        places
        for event, _, places in polls(events)
        if len(places) >= least and not event.more.get("final") and "rebalances" not in event.more and event.type == OK
    ]


def int_nonmonotonic_poll(events: Events, rng: random.Random) -> bool:
    """Two neighbours are read in the wrong order."""
    places = pick(rng, _middle(events, 2))
    if places:
        at = rng.randrange(len(places) - 1)
        places[at], places[at + 1] = places[at + 1], places[at]
    return bool(places)


def int_poll_skip(events: Events, rng: random.Random) -> bool:
    """A record between two others is left out, which others have read."""
    committed = {operation[2][1] for _, operation in sends(events, "send", "txn")}
    found = [(places, place) for places in _middle(events, 3) for place in places[1:-1] if place[1] in committed]
    places, place = pick(rng, found) or (None, None)
    if places:
        places.remove(place)
    return bool(places)


def _neighbours(events: Events) -> list[tuple[list[list[Any]], list[list[Any]]]]:
    """Records of one partition that a process read in two operations, with nothing in between."""
    found = []
    last: dict[tuple[Any, str], tuple[int, list[list[Any]]]] = {}
    moved: dict[Any, int] = {}
    for event, key, places in polls(events):
        for each in events[: event.index]:
            if each.f in ("assign", "subscribe") or "rebalances" in each.more:
                moved[each.process] = each.index
        before = last.get((event.process, key))
        is_calm = "rebalances" not in event.more and event.type == OK and places
        if is_calm and before and before[1] and before[0] < event.index and moved.get(event.process, -1) < before[0]:
            found.append((before[1], places))
        if event.type == OK:
            last[event.process, key] = event.index, places
    return found


def poll_skip(events: Events, rng: random.Random) -> bool:
    """The first record of a read is left out."""
    committed = {operation[2][1] for _, operation in sends(events, "send", "txn")}
    found = [places for _, places in _neighbours(events) if len(places) > 1 and places[0][1] in committed]
    places = pick(rng, found)
    if places:
        del places[0]
    return bool(places)


def nonmonotonic_poll(events: Events, rng: random.Random) -> bool:
    """What ended one read begins the next one again."""
    found = pick(rng, _neighbours(events))
    if found:
        found[1].insert(0, list(found[0][-1]))
    return bool(found)


def int_nonmonotonic_send(events: Events, rng: random.Random) -> bool:
    """Two records of one operation are stored the other way round."""
    found = [
        (one, other)
        for event in events
        if event.type == OK and event.f in ("send", "txn")
        for one in event.operations
        for other in event.operations
        if one[0] == other[0] == "send" and one[1] == other[1] and one[2][0] < other[2][0]
    ]
    chosen = pick(rng, found)
    if chosen:
        swap(events, *chosen)
    return bool(chosen)


def nonmonotonic_send(events: Events, rng: random.Random) -> bool:
    """Records of one process are stored the other way round."""
    sent = sends(events, "send", "txn")
    found = [
        (one, other)
        for event, one in sent
        for later, other in sent
        if event.process == later.process and event.index < later.index and one[1] == other[1]
        if len(event.operations) == len(later.operations) == 1
    ]
    chosen = pick(rng, found)
    if chosen:
        swap(events, *chosen)
    return bool(chosen)


def realtime_send_order(events: Events, rng: random.Random) -> bool:
    """What was sent after another's acknowledgement is stored before it."""
    sent = sends(events, "send")
    begun: dict[Any, Event] = {}
    begin: dict[int, int] = {}
    for event in events:
        if event.type == INVOKE:
            begun[event.process] = event
        elif event.process in begun:
            begin[event.index] = begun[event.process].index
    found = [
        (one, other)
        for event, one in sent
        for later, other in sent
        if event.process != later.process and event.index < begin[later.index] and one[1] == other[1]
    ]
    chosen = pick(rng, found)
    if chosen:
        swap(events, *chosen)
    return bool(chosen)


def compacted_older_after_newer(events: Events, rng: random.Random) -> bool:
    """A key's newest record changes places with the one before it, which compaction had not taken."""
    sent = [operation for _, operation in sends(events, "send") if len(operation[2]) > 2]
    sequences: dict[tuple[str, int], list[list[Any]]] = {}
    for operation in sorted(sent, key=lambda each: each[2][0]):
        sequences.setdefault((operation[1], operation[2][2]), []).append(operation)
    times = {operation[2][1]: event for event, operation in sends(events, "send")}
    begin = {
        operation[2][1]: event
        for event in events
        if event.type == INVOKE and event.f == "send"
        for operation in event.operations
    }
    found = [
        (one, other)
        for each in sequences.values()
        for one, other in itertools.pairwise(each)
        if times[one[2][1]].index < begin[other[2][1]].index
    ]
    chosen = pick(rng, found)
    if chosen:
        swap(events, *chosen)
    return bool(chosen)


def aborted_read(events: Events, rng: random.Random) -> bool:
    """What was read is said to have failed."""
    read = {place[1] for _, _, places in polls(events) for place in places}
    found = [event for event, operation in sends(events, "send", "txn") if operation[2][1] in read]
    event = pick(rng, found)
    if event:
        event.type = FAIL
    return bool(event)


def precommitted_read(events: Events, rng: random.Random) -> bool:
    """A transaction began to commit only after somebody had read what it sent."""
    writers = {operation[2][1]: event for event, operation in sends(events, "txn")}
    found = [
        (event, writers[place[1]])
        for event, _, places in polls(events)
        for place in places
        if place[1] in writers and event is not writers[place[1]]
    ]
    chosen = pick(rng, found)
    if chosen:
        reader, writer = chosen
        writer.more["commit_time"] = reader.time + 1
    return bool(chosen)


def end_beyond_stable(events: Events, rng: random.Random) -> bool:
    """While a transaction is open, a reader is told that its record's partition ends behind it."""
    chosen = pick(rng, sends(events, "txn"))
    if not chosen:
        return False
    event, operation = chosen
    moment = event.more["commit_time"] - 1
    at = next(number for number, each in enumerate(events) if each.time > moment)
    asked = [["end", operation[1], operation[2][0] + rng.randint(1, 3)]]
    events[at:at] = [Event(0, "asking", type, "ends", asked, moment) for type in (INVOKE, OK)]
    for number, each in enumerate(events):
        each.index = number
    return True


def torn_transaction(events: Events, rng: random.Random) -> bool:
    """One record of a committed transaction is read by nobody."""
    found = [
        operation
        for event, operation in sends(events, "txn")
        if sum(each[0] == "send" for each in event.operations) > 1
    ]
    chosen = pick(rng, found)
    if chosen:
        forget(events, chosen[2][1])
    return bool(chosen)


def circular_reads(events: Events, rng: random.Random) -> bool:
    """Two transactions have read each other."""
    sent = sends(events, "txn")
    one, other = pick(rng, sent), pick(rng, sent)
    if not one or one[0] is other[0]:
        return False
    for reader, (_, operation) in ((one[0], other), (other[0], one)):
        reader.operations.append(["poll", {operation[1]: [list(operation[2])]}])
    return True


def read_from_the_future(events: Events, rng: random.Random) -> bool:
    """A read that had ended before the send began has its value."""
    begin = {event.operations[0][2]: event for event in events if event.type == INVOKE and event.f == "send"}
    found = [
        (places, operation)
        for event, key, places in polls(events)
        for _, operation in sends(events, "send")
        if operation[1] == key and operation[2][1] in begin and begin[operation[2][1]].index > event.index
    ]
    chosen = pick(rng, found)
    if chosen:
        places, operation = chosen
        places.append(list(operation[2]))
    return bool(chosen)


def commit_beyond_processed(events: Events, rng: random.Random) -> bool:
    """A group commits an offset behind a record that none of its members has read."""
    read = {place[1] for event, _, places in polls(events) if not event.more.get("final") for place in places}
    found = [
        (event, commit, operation[2][0])
        for event in events
        if event.type == OK
        for commit in event.operations
        if commit[0] == "commit"
        for _, operation in sends(events, "send")
        if operation[1] == commit[2] and operation[2][1] not in read and operation[2][0] >= commit[3]
    ]
    chosen = pick(rng, found)
    if chosen:
        _, commit, offset = chosen
        commit[3] = offset + 1
    return bool(chosen)


def stale_committed_offset(events: Events, rng: random.Random) -> bool:
    """At the end, a coordinator answers an offset that has been replaced."""
    answers = [
        operation for event in events if event.type == OK and event.f == "committed" for operation in event.operations
    ]
    commits = [
        (event, operation)
        for event in events
        if event.type != INVOKE and event.f == "commit"
        for operation in event.operations
    ]
    found = []
    for answer in answers:
        of_key = [(event, commit[3]) for event, commit in commits if commit[2] == answer[2]]
        newest = max((event.index for event, offset in of_key if event.type == OK), default=-1)
        for _, offset in of_key:
            same = [event for event, other in of_key if other == offset]
            if all(event.type == OK and event.index < newest - 20 for event in same):
                found.append((answer, offset))
    answer, offset = pick(rng, found) or (None, 0)
    if answer:
        answer[3] = rng.choice((offset, -1))
    return bool(answer)


def aborted_offset_commit(events: Events, rng: random.Random) -> bool:
    """A coordinator answers what only a failed commit had in it."""
    commits = [event for event in events if event.type == OK and event.f == "commit"]
    answers = [
        (answer, event)
        for done in events
        if done.type == OK and done.f == "committed"
        for answer in done.operations
        for event in commits
        if any(commit[2] == answer[2] and commit[3] == answer[3] for commit in event.operations)
    ]
    answer, event = pick(rng, answers) or (None, None)
    if answer:
        for other in commits:
            if any(commit[2] == answer[2] and commit[3] == answer[3] for commit in other.operations):
                other.type = FAIL
    return bool(answer) and event is not None


def unexpected_committed_offset(events: Events, rng: random.Random) -> bool:
    """A coordinator answers what nobody committed."""
    answers = [
        operation for event in events if event.type == OK and event.f == "committed" for operation in event.operations
    ]
    answer = pick(rng, answers)
    if answer:
        answer[3] = 777
    return bool(answer)


def admin_lost(events: Events, rng: random.Random) -> bool:
    """A topic that was created is not there at the end."""
    last = events[-1]
    texts: list[tuple[str, list[Any], bool]] = [
        (INVOKE, [["create-topic", "new", 2]], False),
        (OK, [["create-topic", "new", 2]], False),
        (INVOKE, [["topics"]], True),
        (OK, [["topics", {"new": 3} if rng.random() < 0.5 else {}]], True),
    ]
    for number, (type, operations, final) in enumerate(texts, 1):
        more = {"final": True} if final else {}
        events.append(Event(last.index + number, "admin", type, "admin", operations, last.time + number, more))
    return True


EDITS: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "lost-write": (lost_write, ("append", "group")),
    "unseen": (unseen, ("append", "group")),
    "duplicate": (duplicate, ("append", "group", "txn")),
    "inconsistent-offsets": (inconsistent_offsets, ("append", "txn")),
    "unexpected-value": (unexpected_value, ("append", "txn", "compact")),
    "int-nonmonotonic-poll": (int_nonmonotonic_poll, ("append", "txn", "group")),
    "int-poll-skip": (int_poll_skip, ("append", "txn", "group")),
    "poll-skip": (poll_skip, ("append", "txn", "group")),
    "nonmonotonic-poll": (nonmonotonic_poll, ("append", "txn", "group")),
    "int-nonmonotonic-send": (int_nonmonotonic_send, ("append", "txn")),
    "nonmonotonic-send": (nonmonotonic_send, ("append", "txn")),
    "realtime-send-order": (realtime_send_order, ("append", "group")),
    "compacted-older-after-newer": (compacted_older_after_newer, ("compact",)),
    "G1a": (aborted_read, ("append", "txn")),
    "precommitted-read": (precommitted_read, ("txn",)),
    "end-beyond-stable": (end_beyond_stable, ("txn",)),
    "torn-transaction": (torn_transaction, ("txn",)),
    "G1c": (circular_reads, ("txn",)),
    "G1c-realtime": (read_from_the_future, ("append", "group")),
    "commit-beyond-processed": (commit_beyond_processed, ("group",)),
    "stale-committed-offset": (stale_committed_offset, ("group",)),
    "aborted-offset-commit": (aborted_offset_commit, ("group",)),
    "unexpected-committed-offset": (unexpected_committed_offset, ("group",)),
    "admin-lost": (admin_lost, ("append",)),
}
"""By the name under which each must be found, and the workloads whose histories have room for it."""
