"""Leader epochs and their first offsets."""

from kbroker.segment.leader_epochs import LeaderEpochs


def test_assigning_drops_what_it_contradicts() -> None:
    epochs = LeaderEpochs(((0, 0), (2, 10), (4, 20)))
    assert not epochs.assign(4, 25)
    assert epochs.assign(3, 15)
    assert epochs.entries == ((0, 0), (2, 10), (3, 15))
    assert epochs.assign(5, 15)
    assert (epochs.entries, epochs.latest_epoch, epochs.dirty) == (((0, 0), (2, 10), (5, 15)), 5, True)


def test_truncation_from_both_ends() -> None:
    epochs = LeaderEpochs(((0, 0), (2, 10), (4, 20)))
    epochs.truncate_from_end(20)
    assert list(epochs.entries) == [(0, 0), (2, 10)]
    epochs.truncate_from_start(12)
    assert list(epochs.entries) == [(2, 12)]
    epochs.truncate_from_end(12)
    assert (epochs.entries, epochs.latest_epoch) == ((), -1)


def test_end_offsets_as_offset_for_leader_epoch_answers_them() -> None:
    epochs = LeaderEpochs(((2, 10), (4, 20), (7, 30)))
    answers = {epoch: epochs.end_offset(epoch, 40) for epoch in (-1, 1, 2, 3, 4, 6, 7, 8)}
    assert answers == {
        -1: (-1, -1),
        1: (1, 10),
        2: (2, 20),
        3: (2, 20),
        4: (4, 30),
        6: (4, 30),
        7: (7, 40),
        8: (-1, -1),
    }
    assert LeaderEpochs().end_offset(0, 5) == (-1, -1)


def test_the_epoch_of_an_offset() -> None:
    epochs = LeaderEpochs(((2, 10), (4, 20)))
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 4]
    assert [epochs.previous_epoch(epoch) for epoch in (2, 3, 4, 9)] == [-1, 2, 2, 4]


def test_the_first_offset_after_an_epoch() -> None:
    epochs = LeaderEpochs(((0, 0), (2, 5), (7, 9)))
    assert [epochs.first_offset_after(each) for each in (-1, 0, 1, 2, 6, 7)] == [0, 5, 5, 9, 9, None]


def test_doubted_epochs_hold_in_the_holes_between_the_batches_found() -> None:
    epochs = LeaderEpochs(((0, 0), (2, 10), (4, 20), (5, 22), (6, 30), (7, 40)))
    epochs.doubt_from(10)
    assert (epochs.entries, epochs.latest_epoch) == (((0, 0),), 0)
    epochs.find(2, 15, 18)
    epochs.find(5, 25, 32)
    assert list(epochs.entries) == [(0, 0), (2, 10), (4, 20), (5, 22)]
    epochs.find(7, 32, 50)  # 6 would begin within a batch of 5, 7 behind its own: both are of what was cut
    assert list(epochs.entries) == [(0, 0), (2, 10), (4, 20), (5, 22), (7, 32)]


def test_batches_without_holes_make_the_epochs_whatever_was_known() -> None:
    epochs = LeaderEpochs(((1, 0), (2, 10), (3, 20)))
    epochs.doubt_from(0)
    for epoch, start in ((1, 0), (1, 10), (4, 20), (3, 30)):
        epochs.find(epoch, start, start + 10)
    assert epochs.entries == ((1, 0), (4, 20))
