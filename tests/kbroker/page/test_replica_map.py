from kbroker.client.types import PartitionDescription, Reassignment, TopicDescription, TopicPartition
from kbroker.page.replica_map import CELL, brokers_in, draw, loads, placements_of

TOPIC = TopicDescription(
    "orders",
    b"",
    False,
    (
        PartitionDescription(0, 1, 0, (1, 2, 3), (1, 2), (3,)),
        PartitionDescription(1, 2, 0, (2, 1), (2,), ()),
        PartitionDescription(2, None, 0, (3,), (3,), (3,)),
    ),
)
MOVES = {TopicPartition("orders", 1): Reassignment((2, 1, 4), (4,), (1,))}


def states(moves: dict[TopicPartition, Reassignment]) -> dict[tuple[int, int], str]:
    return {(cell.x // CELL, cell.y // CELL): cell.state for cell in draw(TOPIC, [1, 2, 3], moves).cells}


def test_each_replica_is_drawn_as_it_is() -> None:
    assert states({}) == {
        (0, 0): "leader",
        (0, 1): "in-sync",
        (0, 2): "offline",
        (1, 1): "leader",
        (1, 0): "out-of-sync",
        (2, 2): "offline",
    }


def test_a_move_shows_where_from_and_where_to() -> None:
    assert states(MOVES)[1, 0] == "removing"
    arriving = TopicDescription("orders", b"", False, (PartitionDescription(1, 2, 0, (2, 4), (2,), ()),))
    assert [cell.state for cell in draw(arriving, [2, 4], MOVES).cells] == ["leader", "adding"]


def test_a_broker_that_is_away_keeps_its_row_and_its_load() -> None:
    placements = placements_of([TOPIC, TOPIC], {})
    assert brokers_in(placements, [1, 2, 4]) == [1, 2, 3, 4]
    by_id = {load.broker: load for load in loads(placements, [1, 2, 3])}
    assert (by_id[3].leaders, by_id[3].replicas, by_id[3].out_of_sync) == (0, 4, 2)
    assert (by_id[1].leaders, by_id[1].replicas, by_id[1].out_of_sync) == (2, 4, 2)


def test_a_replica_that_is_just_being_added_is_not_out_of_sync() -> None:
    arriving = TopicDescription("orders", b"", False, (PartitionDescription(1, 2, 0, (2, 4), (2,), ()),))
    assert [load.out_of_sync for load in loads(placements_of([arriving], MOVES), [2, 4])] == [0, 0]
    assert [load.out_of_sync for load in loads(placements_of([arriving], {}), [2, 4])] == [0, 1]


def test_of_a_topic_without_end_some_partitions_are_drawn() -> None:
    drawing = draw(TOPIC, [1, 2, 3], {}, most=1)
    assert (len(drawing.cells), drawing.width) == (3, CELL)
