from kbroker.coordinator.group_offsets import CommittedOffset, GroupOffsets

KEY = ("t", 0)


def test_an_offset_counts_when_it_is_stored_and_not_before() -> None:
    offsets = GroupOffsets()
    offsets.begin([KEY])
    assert offsets.is_unstable(KEY)
    assert offsets.is_waiting
    assert not offsets.committed
    offsets.stored(KEY, CommittedOffset(5), 10)
    assert offsets.committed == {KEY: CommittedOffset(5)}
    assert not offsets.is_unstable(KEY)
    offsets.check()


def test_the_later_record_wins_whoever_is_acknowledged_first() -> None:
    offsets = GroupOffsets()
    offsets.begin([KEY])
    offsets.begin([KEY])
    offsets.stored(KEY, CommittedOffset(2), 11)
    assert offsets.is_unstable(KEY)
    offsets.stored(KEY, CommittedOffset(1), 10)
    assert offsets.committed[KEY].offset == 2
    assert not offsets.is_waiting


def test_a_failed_commit_leaves_what_was_there() -> None:
    offsets = GroupOffsets()
    offsets.load(KEY, CommittedOffset(1), 3)
    offsets.begin([KEY])
    offsets.failed([KEY])
    assert offsets.committed[KEY].offset == 1
    assert not offsets.is_waiting


def test_a_transactions_offsets_wait_for_its_marker() -> None:
    offsets = GroupOffsets()
    offsets.add_transactional(7, KEY, CommittedOffset(5), 4)
    offsets.add_transactional(8, KEY, CommittedOffset(6), 5)
    assert offsets.is_unstable(KEY)
    offsets.end_transaction(8, is_commit=False)
    assert not offsets.committed
    offsets.end_transaction(7, is_commit=True)
    assert offsets.committed[KEY].offset == 5
    offsets.end_transaction(99, is_commit=True)
    assert not offsets.is_waiting
    offsets.check()


def test_a_plain_commit_behind_a_transactional_one_is_kept() -> None:
    offsets = GroupOffsets()
    offsets.add_transactional(7, KEY, CommittedOffset(5), 4)
    offsets.load(KEY, CommittedOffset(9), 6)
    offsets.end_transaction(7, is_commit=True)
    assert offsets.committed[KEY].offset == 9


def test_removed_offsets_are_gone_from_transactions_too() -> None:
    offsets = GroupOffsets()
    offsets.load(KEY, CommittedOffset(1), 1)
    offsets.add_transactional(7, ("u", 1), CommittedOffset(2), 2)
    assert list(offsets.all_keys()) == [KEY, ("u", 1)]
    assert offsets.remove([KEY, ("u", 1), ("unknown", 0)]) == [KEY, ("u", 1)]
    assert not offsets.committed
    assert not offsets.is_waiting
    offsets.check()


def test_what_is_read_or_on_its_way_does_not_expire() -> None:
    offsets = GroupOffsets()
    for topic in ("read", "pending", "old", "young", "own"):
        offsets.load((topic, 0), CommittedOffset(1, commit_timestamp=100 if topic != "young" else 950), 0)
    offsets.load(("own", 0), CommittedOffset(1, commit_timestamp=990, expire_timestamp=995), 0)
    offsets.begin([("pending", 0)])
    offsets.load(("in transaction", 0), CommittedOffset(1, commit_timestamp=100), 0)
    offsets.add_transactional(7, ("in transaction", 0), CommittedOffset(2), 2)
    found = offsets.expired(1000, 100, lambda committed: committed.commit_timestamp, lambda topic: topic == "read")
    assert found == [("old", 0), ("own", 0)]


def test_of_two_commits_in_a_transaction_that_end_out_of_order_the_later_record_counts() -> None:
    offsets = GroupOffsets()
    offsets.begin([KEY, KEY])
    offsets.stored_in_transaction(7, KEY, CommittedOffset(5), 4)
    offsets.stored_in_transaction(7, KEY, CommittedOffset(4), 3)
    offsets.end_transaction(7, is_commit=True)
    assert (offsets.committed[KEY].offset, offsets.is_waiting) == (5, False)


def test_a_commit_that_is_acknowledged_after_its_removal_goes_with_the_removals_record() -> None:
    offsets = GroupOffsets()
    offsets.load(KEY, CommittedOffset(1), 3)
    offsets.begin([KEY])
    assert offsets.remove([KEY]) == [KEY]
    offsets.stored(KEY, CommittedOffset(2), 10)
    offsets.removal_stored(KEY, 11)
    assert not offsets.committed
    offsets.begin([KEY])
    assert offsets.pending_keys() == [KEY]
    assert offsets.remove([KEY]) == [KEY], "its first commit is on its way"
    offsets.stored(KEY, CommittedOffset(3), 12)
    offsets.begin([KEY])
    offsets.stored(KEY, CommittedOffset(4), 14)
    offsets.removal_stored(KEY, 13)
    offsets.removal_stored(("other", 0), 15)
    assert offsets.committed == {KEY: CommittedOffset(4)}
    offsets.check()


def test_a_removal_is_owed_until_its_record_or_that_of_a_later_commit_is_stored() -> None:
    offsets, later = GroupOffsets(), GroupOffsets()
    offsets.load(KEY, CommittedOffset(1), 3)
    offsets.add_transactional(7, ("u", 1), CommittedOffset(2), 4)
    for _ in range(2):  # nobody said that it was stored
        assert offsets.remove([KEY, ("u", 1), ("unknown", 0)]) == [KEY, ("u", 1)]
        assert list(offsets.all_keys()) == offsets.owed_removals() == [KEY, ("u", 1)]
    later.load(("u", 1), CommittedOffset(2), 9)
    later.take_over_removals(offsets)
    assert later.owed_removals() == [KEY]
    offsets.removal_stored(("u", 1), 5)
    assert offsets.remove([("u", 1)]) == []
    offsets.begin([KEY])
    assert offsets.owed_removals() == [], "its record would come behind that of the commit"
    offsets.stored(KEY, CommittedOffset(5), 6)
    assert offsets.owed_removals() == []
    for each in (offsets, later):
        each.check()


def test_a_removal_goes_for_offsets_of_transactions_that_came_before_it_whenever_their_marker_is_heard_of() -> None:
    offsets = GroupOffsets()
    offsets.load(KEY, CommittedOffset(1), 3)
    offsets.add_transactional(7, KEY, CommittedOffset(5), 5)
    offsets.add_transactional(7, ("t", 1), CommittedOffset(6), 6)
    offsets.add_transactional(8, KEY, CommittedOffset(7), 7)
    assert offsets.remove([KEY]) == [KEY]
    offsets.add_transactional(9, KEY, CommittedOffset(11), 11)
    offsets.removal_stored(KEY, 10)
    offsets.check()
    offsets.end_transaction(7, is_commit=True)
    offsets.end_transaction(8, is_commit=True)
    assert offsets.committed == {("t", 1): CommittedOffset(6)}
    offsets.end_transaction(9, is_commit=True)
    assert offsets.committed[KEY] == CommittedOffset(11)
    assert not offsets.is_waiting
