"""Each fault, and for each kind of client the tests that it breaks nothing, or a line why there is none.

test_table.py holds this table to the code.
"""

from __future__ import annotations

from collections.abc import Mapping

Cell = tuple[str, ...] | str
"""Tests, or why not."""

COLUMNS = ("idempotent", "plain acks=all", "groups", "compaction", "transactions", "Spark stream")

FAULTS = "tests/faults"
SOAK = f"{FAULTS}/test_soak.py::test_no_promise_is_broken_by_any_row_of_faults"
"""`kbroker verify` under all faults of drawn.py: workloads append, queue, group, compact, txn."""
POWER = f"{FAULTS}/power_cuts.py::test_nothing_acknowledged_is_lost_when_the_power_of_all_brokers_fails"
LINKS = f"{FAULTS}/test_client_links.py::test_what_was_acknowledged_over_breaking_links_is_there"
HISTORIES = f"{FAULTS}/test_client_links.py::test_histories_over_breaking_links_are_valid"
ENSEMBLE = f"{FAULTS}/test_zookeeper.py::test_an_ensemble_may_lose_any_one_of_its_three_and_nothing_stands_still"
WIPED = (
    f"{FAULTS}/test_zookeeper.py"
    "::test_brokers_of_a_zookeeper_that_has_forgotten_everything_keep_their_logs_until_it_is_put_back"
)
FAILING = (
    f"{FAULTS}/test_failing_files.py"
    "::test_a_broker_whose_disk_fails_at_a_file_stops_and_comes_back_with_all_that_it_acknowledged"
)
FLIPPED = f"{FAULTS}/test_flipped_files.py::test_bits_that_flip_beside_the_log_cost_nothing_after_a_crash"
MENDED = (
    "tests/kbroker/replica/test_segment_mender.py"
    "::test_a_damaged_segment_is_mended_from_the_other_replica_and_nobody_leaves_the_isr"
)
TORN = (
    "tests/system/test_kills.py"
    "::test_nothing_acknowledged_is_lost_and_nothing_torn_is_served_however_often_the_broker_is_killed"
)
SHORT = f"{FAULTS}/test_disks.py::test_a_log_that_comes_back_first_without_what_it_had_costs_nobody_anything"
CREATED = (
    f"{FAULTS}/test_controller_kills.py::test_topics_that_were_being_created_have_all_their_partitions_or_are_not_there"
)
MULTIS = "tests/controller/test_controller_store.py::test_large_operations_are_spread_over_several_multis"
DRIFT = f"{FAULTS}/test_clocks.py::test_clocks_that_drift_apart_by_an_hour_each_minute_move_nothing"
APART = f"{FAULTS}/test_clocks.py::test_brokers_whose_clocks_are_days_apart_keep_their_isr_and_their_records"
KILLED = f"{FAULTS}/test_transaction_kills.py::test_committed_transactions_are_read_whole_and_aborted_ones_never"
SPARK_DIES = "tests/spark/test_exactly_once.py::test_rows_come_once_whoever_dies_and_wherever"
SPARK_LEADER = "tests/spark/test_faults.py::test_a_scan_goes_on_with_the_new_leader_when_the_old_one_dies"

SEES_BROKERS_ONLY = "Spark's tasks are clients like the others: of this they see a leader that changes"
ITS_LOG_IS_LIKE_ANY = "offsets and compacted records lie in logs like any other: what the column beside shows holds"
ONLY_STAMPS = "clocks stamp records and end what is idle; a stream's offsets are in its checkpoint"

TABLE: Mapping[str, tuple[Cell, ...]] = {
    "client links are cut, reset, slow, and lose answers": (
        (LINKS, SOAK),
        (LINKS,),
        (HISTORIES, SOAK),
        (SOAK,),
        (HISTORIES, f"{FAULTS}/test_client_links.py::test_a_transaction_is_whole_whatever_answer_it_loses"),
        SEES_BROKERS_ONLY,
    ),
    "one ZooKeeper of three is lost": (
        (ENSEMBLE,),
        "idempotence is the broker's alone, and asks ZooKeeper once for a block of ids",
        "coordinators follow leaderships, which nothing moves here",
        "compaction is each broker's alone, and asks ZooKeeper nothing",
        "coordinators follow leaderships, which nothing moves here",
        SEES_BROKERS_ONLY,
    ),
    "ZooKeeper's data are wiped": (
        "nothing is written until they are back",
        (WIPED,),
        ITS_LOG_IS_LIKE_ANY,
        ITS_LOG_IS_LIKE_ANY,
        ITS_LOG_IS_LIKE_ANY,
        "a stream waits as for any cluster that is away",
    ),
    "a disk is full or fails, at any file": (
        (FAILING, f"{FAULTS}/test_disks.py::test_one_full_disk_of_two_moves_its_partitions_only"),
        (f"{FAULTS}/test_disks.py::test_a_broker_whose_only_disk_is_full_stops_and_with_more_room_catches_up",),
        (FAILING,),
        ("tests/crash/test_compaction.py::test_a_process_that_ends_at_any_step_of_a_compaction_leaves_a_whole_log",),
        (FAILING,),
        SEES_BROKERS_ONLY,
    ),
    "a disk or a link is slow": (
        (POWER, HISTORIES),
        (POWER,),
        (HISTORIES,),
        "the cleaner has threads of its own: who waits for it is nobody",
        (POWER, HISTORIES),
        SEES_BROKERS_ONLY,
    ),
    "a bit flips in a log under a running broker": (
        (MENDED,),
        (MENDED,),
        "the offsets' topic is compacted: see there",
        (
            "tests/segment/test_segment_mending.py::test_a_compacted_log_is_not_mended_for_it_might_bring_deleted_keys_back",
        ),
        (MENDED,),
        "a stream is told as any consumer: tests/kbroker/handlers/test_fetch.py",
    ),
    "a bit flips in an index, a checkpoint or a snapshot": (
        (FLIPPED,),
        (FLIPPED,),
        ITS_LOG_IS_LIKE_ANY,
        ITS_LOG_IS_LIKE_ANY,
        "transaction indexes are checked when they are opened, and made again; snapshots are in the columns before",
        SEES_BROKERS_ONLY,
    ),
    "tails are torn": (
        (TORN, SHORT),
        (TORN, SHORT),
        (SOAK,),
        ("tests/crash/test_compaction.py::test_the_power_may_fail_at_any_step_of_a_compaction",),
        (
            SOAK,
            KILLED,
        ),
        (SPARK_DIES,),
    ),
    "the power of all brokers fails at once": (
        (POWER,),
        (POWER,),
        "offsets are records of acks=all; with a flush before the acknowledgement those hold",
        ("tests/crash/test_compaction.py::test_the_power_may_fail_at_any_step_of_a_compaction",),
        (POWER,),
        "a stream's checkpoint is a file of its own; what it reads and writes are records",
    ),
    "the controller is killed within a large change": (
        (CREATED, MULTIS),
        (CREATED, MULTIS),
        (f"{FAULTS}/test_coordinator_kills.py::test_the_coordinator_is_killed_in_the_middle_of_a_rebalance", SOAK),
        (SOAK,),
        (SOAK,),
        (SPARK_LEADER,),
    ),
    "clocks go forward, back, and drift": (
        (DRIFT, APART, SOAK),
        (DRIFT, APART),
        (SOAK,),
        (SOAK,),
        (DRIFT, SOAK),
        ONLY_STAMPS,
    ),
}
