"""What holds the last stable offset back."""

import threading
from collections.abc import Iterator
from random import Random

from kbroker.segment.undecided import UndecidedTransactions


def test_the_first_to_begin_counts_also_when_another_ends_first() -> None:
    transactions = UndecidedTransactions()
    transactions.begin(1, 0)
    transactions.begin(2, 1)
    assert transactions.end(1, 2) == 0
    assert transactions.first_unstable_offset == 0
    assert transactions.end(0, 3) == 4
    transactions.replicated(3)
    assert transactions.first_unstable_offset == 0
    transactions.replicated(4)
    assert transactions.first_unstable_offset is None


def test_a_decided_transaction_counts_until_its_marker_is_replicated() -> None:
    transactions = UndecidedTransactions()
    transactions.begin(1, 5)
    transactions.end(5, 9)
    assert (transactions.first_unstable_offset, transactions.has_decided) == (5, True)
    transactions.replicated(9)
    assert (transactions.first_unstable_offset, transactions.has_decided) == (5, True)
    transactions.replicated(10)
    assert (transactions.first_unstable_offset, transactions.has_decided) == (None, False)


def test_any_interleaving_agrees_with_looking_at_all_of_them() -> None:
    rng = Random(1)
    for _ in range(50):
        transactions = UndecidedTransactions()
        known: dict[int, int | None] = {}
        watermark = 0
        for offset in range(100):
            undecided = [first for first, marker in known.items() if marker is None]
            if undecided and rng.random() < 0.4:
                first = rng.choice(undecided)
                known[first] = offset
                others = [each for each in undecided if each != first]
                assert transactions.end(first, offset) == min(others, default=offset + 1)
            else:
                known[offset] = None
                transactions.begin(offset, offset)
            if rng.random() < 0.3:
                watermark = rng.randint(watermark, offset + 1)
                transactions.replicated(watermark)
                known = {first: marker for first, marker in known.items() if marker is None or marker >= watermark}
            assert transactions.first_unstable_offset == min(known, default=None)
            assert list(transactions.open) == sorted(first for first, marker in known.items() if marker is None)


def test_a_transaction_that_begins_while_others_are_forgotten_is_not_forgotten() -> None:
    transactions = UndecidedTransactions()
    beginning = threading.Thread(target=transactions.begin, args=(2, 20))

    class LookedThrough(dict[int, None]):
        """Lets another thread begin a transaction just when it was found that there is none."""

        def __iter__(self) -> Iterator[int]:
            found = list(super().__iter__())
            if beginning.ident is None:
                beginning.start()
                beginning.join(0.2)
            return iter(found)

    transactions._all = LookedThrough()
    transactions.replicated(10)
    beginning.join(20)
    assert transactions.first_unstable_offset == 20
