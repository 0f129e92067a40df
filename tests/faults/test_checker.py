"""The checker must see what it is there for: made-up histories, each with one fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbroker.protocol.records.batch import HEADER, split_batches
from tests.faults.checker import Account, Replica, check_history, check_replicas, identify
from tests.system.wire import one_batch
from tests.system.writers import UNKNOWN_OFFSET, value_of

SENT = {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
GOOD = Account("w", SENT, {0: (0, 0), 1: (1, 0), 2: (0, 1), 3: (1, 1), 4: (0, 2)})


def values(*numbers: int, name: str = "w") -> list[bytes]:
    return [value_of(name, number) for number in numbers]


STORED = {0: values(0, 2, 4), 1: values(1, 3)}


def test_a_history_as_promised_has_no_problems() -> None:
    assert check_history([GOOD], STORED, {(0, 1): value_of("w", 2)}) == []


def test_a_value_tells_who_made_it() -> None:
    assert identify(value_of("two-words", 17)) == ("two-words", 17)
    assert identify(b"something else") is None


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ({0: values(0, 2), 1: values(1, 3)}, "w 4: acknowledged at (0, 2), and missing"),
        ({0: values(0, 2, 4, 2), 1: values(1, 3)}, "w 2: stored more than once, at [(0, 1), (0, 3)]"),
        ({0: values(0, 4, 2), 1: values(1, 3)}, "w 2: stored out of order in partition 0, at offset 2"),
        ({0: values(0, 2, 4), 1: values(1, 3, 0)}, "partition 1 offset 2: nobody sent b'w-0000000-"),
        ({0: values(0, 2, 4, 99), 1: values(1, 3)}, "partition 0 offset 3: nobody sent b'w-0000099-"),
        ({0: [*values(0, 2, 4), b"torn"], 1: values(1, 3)}, "partition 0 offset 3: nobody sent b'torn'"),
        ({0: [b"", *values(0, 2, 4)], 1: values(1, 3)}, "w 0: acknowledged at (0, 0), and found at [(0, 1)]"),
    ],
)
def test_what_is_stored_otherwise_than_promised_is_told(stored: dict[int, list[bytes]], told: str) -> None:
    assert [problem for problem in check_history([GOOD], stored) if problem.startswith(told)]


def test_what_was_never_acknowledged_may_be_there_or_not_but_the_writer_must_have_been_told() -> None:
    unsure = replace(GOOD, acknowledged={n: place for n, place in GOOD.acknowledged.items() if n != 4})
    assert check_history([unsure], STORED) == ["w 4: neither acknowledged nor failed"]
    failed = replace(unsure, failed=frozenset({4}))
    assert check_history([failed], STORED) == []
    assert check_history([failed], {0: values(0, 2), 1: values(1, 3)}) == []


def test_acknowledgements_of_a_partition_come_in_the_order_of_sending() -> None:
    turned = replace(GOOD, acknowledged={2: (0, 1), 0: (0, 0), 1: (1, 0), 3: (1, 1), 4: (0, 2)})
    assert check_history([turned], STORED) == ["w 0: acknowledged out of order in partition 0, at offset 0"]


def test_what_was_acknowledged_at_an_unknown_offset_must_be_in_its_partition() -> None:
    untold = replace(GOOD, acknowledged={**GOOD.acknowledged, 4: (0, UNKNOWN_OFFSET)})
    assert check_history([untold], STORED) == []
    (told,) = check_history([untold], {0: values(0, 2), 1: values(1, 3)})
    assert told == "w 4: acknowledged at (0, -1), and missing"
    elsewhere = replace(untold, acknowledged={**GOOD.acknowledged, 4: (1, UNKNOWN_OFFSET)})
    assert check_history([elsewhere], STORED) == ["w 4: acknowledged in partition 1, found at [(0, 2)]"]


def test_a_writer_without_idempotence_may_repeat_itself_but_not_lose() -> None:
    plain = replace(GOOD, is_idempotent=False)
    assert check_history([plain], {0: values(0, 2, 4, 2), 1: values(1, 3)}) == []
    assert check_history([plain], {0: values(0, 2), 1: values(1, 3)}) == ["w 4: acknowledged at (0, 2), and missing"]


def test_what_a_reader_saw_must_stay() -> None:
    seen = {(0, 3): value_of("w", 6), (0, 1): value_of("w", 4), (7, 0): b"x"}
    assert len(check_history([GOOD], STORED, seen)) == 3


def test_two_writers_are_told_apart() -> None:
    other = Account("other", {0: 0}, {0: (0, 3)})
    stored = {0: [*values(0, 2, 4), *values(0, name="other")], 1: values(1, 3)}
    assert check_history([GOOD, other], stored) == []
    assert check_history([GOOD, other], STORED) == ["other 0: acknowledged at (0, 3), and missing"]


def test_a_flood_of_problems_is_counted_by_kind() -> None:
    many = Account("w", dict.fromkeys(range(1000), 0), {number: (0, number) for number in range(1000)})
    told = check_history([many], {0: []})
    assert len(told) == 21
    assert told[-1] == "1000 x w #: acknowledged at (#, #), and missing"


# -- replicas -------------------------------------------------------------------------------------------------------


def log_of(*batches: tuple[int, int, bytes]) -> bytes:
    """(base offset, leader epoch, value): two fields the checksum does not cover."""
    data = b""
    for base, epoch, value in batches:
        batch = one_batch(value, timestamp=1_000)
        batch[:8] = base.to_bytes(8, "big")
        batch[12:16] = epoch.to_bytes(4, "big")
        data += batch
    return data


EPOCHS = ((0, 0), (3, 2))
LOG = log_of((0, 0, b"a"), (1, 0, b"b"), (2, 3, b"c"))
WHOLE = Replica(0, LOG, EPOCHS)


def test_replicas_with_the_same_bytes_have_no_problems() -> None:
    assert check_replicas({1: WHOLE, 2: WHOLE, 3: WHOLE}, 3) == []
    assert check_replicas({1: Replica(0, b""), 2: Replica(0, b"")}, 0) == []


def test_what_lies_above_the_high_watermark_may_differ() -> None:
    more = Replica(0, LOG + log_of((3, 4, b"d")), (*EPOCHS, (4, 3)))
    assert check_replicas({1: WHOLE, 2: more}, 3) == []
    assert check_replicas({1: WHOLE, 2: Replica(0, LOG, (*EPOCHS, (5, 3)))}, 3) == []


def test_a_replica_that_ends_below_the_high_watermark_is_told() -> None:
    short = Replica(0, log_of((0, 0, b"a"), (1, 0, b"b")), EPOCHS[:1])
    assert check_replicas({1: WHOLE, 2: short}, 3)[0] == "broker 2 ends at 2, the high watermark is 3"


def test_another_value_or_another_epoch_at_an_offset_is_told() -> None:
    value = Replica(0, log_of((0, 0, b"a"), (1, 0, b"x"), (2, 3, b"c")), EPOCHS)
    (told,) = check_replicas({1: WHOLE, 2: value}, 3)
    assert told.startswith("broker 2 differs from broker 1 at byte")
    assert told.endswith("in the batch at offset 1")
    epoch = Replica(0, log_of((0, 0, b"a"), (1, 1, b"b"), (2, 3, b"c")), ((0, 0), (1, 1), (3, 2)))
    assert check_replicas({1: WHOLE, 2: epoch}, 3)


def test_a_leader_epoch_checkpoint_that_its_batches_contradict_is_told() -> None:
    for epochs in ((), ((0, 0),), ((0, 0), (2, 1), (3, 2)), ((0, 0), (3, 1))):
        (told,) = check_replicas({1: WHOLE, 2: Replica(0, LOG, epochs)}, 3)
        assert told.startswith("broker 2: leader-epoch-checkpoint says")


def test_a_hole_and_a_wrong_checksum_are_told() -> None:
    hole = Replica(0, log_of((0, 0, b"a"), (2, 3, b"c")), EPOCHS)
    assert "broker 2: offset 2 follows 0" in check_replicas({1: WHOLE, 2: hole}, 3)
    position, size = split_batches(LOG)[-1]
    assert HEADER.unpack_from(LOG, position)[0] == 2
    broken = bytearray(LOG)
    broken[position + size - 1] ^= 1
    told = check_replicas({1: WHOLE, 2: Replica(0, bytes(broken), EPOCHS)}, 3)
    assert "broker 2: the batch at offset 2 has a wrong checksum" in told


def test_a_replica_that_begins_later_is_compared_from_there() -> None:
    later = Replica(1, log_of((1, 0, b"b"), (2, 3, b"c")), ((0, 1), (3, 2)))
    assert check_replicas({1: WHOLE, 2: later}, 3) == []
