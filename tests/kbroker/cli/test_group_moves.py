from kbroker.cli.group_moves import MOVE_COLUMNS, moves
from kbroker.client.types import OffsetAndMetadata, TopicPartition


def test_a_move_has_where_the_group_was_and_where_it_is() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    rows = moves("g", {first: OffsetAndMetadata(5)}, {first: 0, second: 7})
    assert [tuple(row[column] for column in MOVE_COLUMNS) for row in rows] == [
        ("g", "t", 0, 5, 0),
        ("g", "t", 1, None, 7),
    ]
