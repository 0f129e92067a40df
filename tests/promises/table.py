"""Each promise, the tests that hold it, and lines which keep it: a mutant breaks one, and its tests must turn red.

`make mutants` plants them; test_table.py holds this table to the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPLICA = "tests/kbroker/replica"
HANDLERS = "tests/kbroker/handlers"
COORDINATOR = "tests/kbroker/coordinator"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A line that keeps a promise, and what breaks it."""

    name: str
    file: str
    line: str
    """As it stands in the file, once."""
    broken: str
    seeds: int = 0
    """Within so many, from 1 on, tests/simulation finds it; 0: it is not known to. About three times what it took."""
    seen_by: tuple[str, str, str] | None = None
    """Workload, nemesis and clients (trial.py) under which `kbroker verify` finds it, from outside."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What users rely on."""

    text: str
    tests: tuple[str, ...]
    mutants: tuple[Mutant, ...]


PROMISES = (
    Promise(
        "What is acknowledged with acks=all is on every replica in sync, and on min.insync.replicas of them",
        (
            f"{REPLICA}/test_partition.py::test_the_high_watermark_waits_for_all_of_the_isr",
            f"{REPLICA}/test_partition.py::test_the_high_watermark_stands_still_below_min_insync_replicas",
            f"{HANDLERS}/test_produce.py::test_too_few_in_sync_replicas_refuse_before_the_append",
            f"{HANDLERS}/test_produce.py::test_acks_all_waits_for_the_followers_and_times_out",
        ),
        (
            Mutant(
                "the high watermark moves without the ISR",
                "kbroker/replica/partition.py",
                "            if remote.log_end_offset >= lowest:\n                continue\n",
                "            continue\n",
                seeds=5,
                seen_by=("append", "kills", "confluent"),
            ),
            Mutant(
                "the high watermark moves below min.insync.replicas",
                "kbroker/replica/partition.py",
                "        if self.role is not Role.LEADER or not self.has_enough_in_sync:",
                "        if self.role is not Role.LEADER:",
                seeds=15,
            ),
            Mutant(
                "min.insync.replicas is not asked before an append",
                "kbroker/replica/appending.py",
                "    if acks == ALL_IN_SYNC and len(state.isr) < state.min_insync_replicas and",
                "    if False and",
                seeds=10,
            ),
            Mutant(
                "acks=all is answered at once",
                "kbroker/replica/appending.py",
                "            if hosted.state.high_watermark <= result.last_offset:",
                "            if False:",
                seeds=5,
                seen_by=("append", "kills", "confluent"),
            ),
        ),
    ),
    Promise(
        "With a flush before the acknowledgement, what is acknowledged survives the loss of power",
        (
            f"{HANDLERS}/test_produce.py::test_with_flush_messages_1_nothing_is_acknowledged_before_the_flush",
            f"{HANDLERS}/test_produce.py::test_nothing_is_acknowledged_that_could_not_be_flushed",
            "tests/crash/test_synced.py::test_what_was_flushed_is_there",
            "tests/crash/test_synced.py"
            "::test_what_a_truncation_has_cut_off_a_segment_does_not_come_back_when_the_next_one_begins_there",
            "tests/crash/test_synced.py::test_the_indexes_of_a_closed_segment_are_there_though_each_append_was_flushed",
            "tests/crash/test_synced.py"
            "::test_a_segment_that_is_closed_where_the_recovery_point_was_written_is_recovered",
            "tests/crash/test_synced.py::test_what_is_written_over_dropped_segments_never_lies_among_them",
        ),
        (
            Mutant(
                "what belongs to a segment that was closed is not synced",
                "segment/log_disk.py",
                "            self.recovery_point = min(self.recovery_point, base_offset - 1)\n",
                "            pass\n",
                seeds=10,
            ),
            Mutant(
                "a recovery passes over a segment that was closed where the recovery point was written",
                "segment/offset_checkpoints.py",
                "    return max(min(each.recovery_point, committed - 1), 0)\n",
                "    return min(each.recovery_point, committed)\n",
            ),
            Mutant(
                "the names of dropped segments are synced later",
                "segment/log_disk.py",
                "            self.pool.files.sync_folder(self.folder.path)\n        self.segments[-1].truncate_to",
                "            self._note_names(1)\n        self.segments[-1].truncate_to",
            ),
            Mutant(
                "a file is not synced",
                "segment/files.py",
                "        os.fdatasync(descriptor)\n",
                "        os.fstat(descriptor)\n",
                seeds=5,
            ),
            Mutant(
                "acks=1 is answered before the flush",
                "kbroker/replica/appending.py",
                "        elif acks and hosted.flush_messages != FLUSH_NEVER and must_wait_for_flush(hosted, result):",
                "        elif False:",
                seeds=5,
            ),
            Mutant(
                "a flush that failed acknowledges",
                "segment/log.py",
                '                        self.fail(error, "flush")\n                continue\n',
                "                        begun.disk.end_flush(begun)\n                return\n",
                seeds=250,
            ),
        ),
    ),
    Promise(
        "A batch that is damaged or cut short is never served",
        (
            f"{HANDLERS}/test_fetch.py::test_a_bit_flipped_on_disk_is_never_served_as_another_batch",
            "tests/segment/test_log.py::test_a_flipped_bit_is_never_served",
            "tests/segment/test_recovery.py::test_damage_in_the_middle_ends_the_log_and_drops_later_segments",
        ),
        (
            Mutant(
                "a damaged batch is served",
                "segment/batch_checks.py",
                "        if is_whole and not verify_crc(data, position, size):",
                "        if False:",
                seeds=90,
            ),
            Mutant(
                "recovery keeps a damaged batch",
                "segment/segment_recovery.py",
                "        if not verify_crc(chunk, position - start, header.size):",
                "        if False:",
                seeds=80,
            ),
        ),
    ),
    Promise(
        "Consumers read below the high watermark, read_committed ones below the last stable offset and nothing aborted",
        (
            f"{HANDLERS}/test_transactions.py::test_a_marker_decides_the_transaction_for_who_reads_committed",
            f"{HANDLERS}/test_offsets.py::test_the_latest_offset_is_what_the_isolation_level_lets_read",
            f"{HANDLERS}/test_fetch.py::test_a_follower_reads_to_the_log_end_and_moves_the_high_watermark",
        ),
        (
            Mutant(
                "read_committed reads to the high watermark",
                "kbroker/replica/fetching.py",
                "            limit = last_stable_offset if parameters.read_committed else high_watermark",
                "            limit = high_watermark",
                seeds=15,
                seen_by=("txn", "none", "confluent"),
            ),
            Mutant(
                "consumers read to the log's end",
                "kbroker/replica/fetching.py",
                "            limit = last_stable_offset if parameters.read_committed else high_watermark\n",
                "            limit = log_end_offset\n",
                seeds=15,
                seen_by=("txn", "none", "confluent"),
            ),
            Mutant(
                "aborted transactions are not listed",
                "kbroker/replica/fetching.py",
                "        if not records:\n            return []\n        return [",
                "        return []\n        return [",
                seeds=15,
                seen_by=("txn", "none", "confluent"),
            ),
            Mutant(
                "ListOffsets of read_committed answers the high watermark",
                "kbroker/handlers/offsets.py",
                "limit = log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark",
                "limit = log.high_watermark",
                seeds=15,
                seen_by=("txn", "none", "confluent"),
            ),
        ),
    ),
    Promise(
        "Idempotent producers: nothing twice, nothing out of order",
        (
            f"{HANDLERS}/test_produce.py::test_a_gap_in_a_sequence_is_refused_and_a_repeated_batch_is_not_stored_again",
            "tests/segment/test_producer_state.py::test_each_of_the_last_five_batches_is_recognised",
        ),
        (
            Mutant(
                "sequences are not compared",
                "segment/producer_state.py",
                "        if entry.epoch != -1 and header.base_sequence != expected:",
                "        if False:",
                seeds=10,
            ),
            Mutant(
                "repeated batches are not recognised",
                "segment/producer_state.py",
                "            if duplicate is not None:\n                return duplicate",
                "            if False:\n                return duplicate",
                seeds=10,
                seen_by=("append", "retries", "kbroker"),
            ),
        ),
    ),
    Promise(
        "A stale controller, leader or follower is fenced by its epoch",
        (
            f"{REPLICA}/test_partition.py::test_leader_epochs_of_requests",
            f"{REPLICA}/test_partition.py::test_assignments_of_no_newer_epoch_are_refused",
            f"{REPLICA}/test_appending.py::test_a_leader_demoted_while_it_recompresses_a_batch_does_not_write_it",
            f"{HANDLERS}/test_replication.py::test_orders_of_an_older_controller_are_refused",
            f"{HANDLERS}/test_replication.py::test_orders_for_an_earlier_life_of_the_broker_are_refused",
        ),
        (
            Mutant(
                "leader epochs of requests are not compared",
                "kbroker/replica/partition.py",
                "        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:",
                "        if False:",
                seeds=10,
            ),
            Mutant(
                "old assignments are taken",
                "kbroker/replica/partition.py",
                "        if assignment.leader_epoch <= self.leader_epoch:",
                "        if False:",
                seeds=50,
            ),
            Mutant(
                "an older controller is obeyed",
                "kbroker/replica/leadership.py",
                "        if controller_epoch < self.controller_epoch:",
                "        if False:",
                seeds=5,
            ),
            Mutant(
                "orders for an earlier life of the broker are obeyed",
                "kbroker/replica/leadership.py",
                "        if 0 <= broker_epoch < self._manager.broker_epoch():",
                "        if False:",
                seeds=5,
            ),
            Mutant(
                "a leader that was demoted meanwhile writes what was prepared",
                "kbroker/replica/appending.py",
                "        return _refusal(hosted.state, acks)\n",
                "        return None\n",
                seeds=55,
            ),
        ),
    ),
    Promise(
        "A follower drops what its leader does not have",
        (
            f"{REPLICA}/test_fetcher_loop.py::test_a_follower_whose_log_others_wrote_to_cuts_it_and_goes_on",
            f"{REPLICA}/test_histories.py::test_nothing_acknowledged_is_lost_and_all_logs_become_the_same",
        ),
        (
            Mutant(
                "a follower does not truncate",
                "kbroker/replica/follower_log.py",
                "        cut_to_leaders(log, offset, data.log_start_offset, now_ms)",
                "        (lambda *_: None)(offset)",
                seeds=15,
                seen_by=("append", "tails", "confluent"),
            ),
        ),
    ),
    Promise(
        "A log that came back shorter than what it had promised leads nobody until it is filled",
        (
            "tests/segment/test_recovery.py::test_a_log_that_lost_what_it_had_promised_is_short_until_it_is_filled",
            "tests/segment/test_log_manager.py"
            "::test_after_a_loss_of_power_only_what_was_flushed_before_each_answer_is_whole",
            "tests/kbroker/cluster/test_lost_logs.py::test_a_member_of_the_isr_waits_until_it_is_left_out",
            "tests/kbroker/cluster/test_lost_logs.py::test_a_member_that_is_alone_does_not_wait",
        ),
        (
            Mutant(
                "a log is believed to be whole after a loss of power",
                "segment/log_manager.py",
                "not directory.has_lost_power or",
                "True or",
                seeds=200,
            ),
            Mutant(
                "a broker with a short log registers at once",
                "kbroker/cluster/lost_logs.py",
                "    if not lost:\n        return\n",
                "    return\n",
                seeds=120,
            ),
            Mutant(
                "a lone member of the ISR waits for nobody",
                "kbroker/cluster/lost_logs.py",
                "if broker_id in state.isr and len(state.isr) > 1]",
                "if broker_id in state.isr]",
                seeds=100,
            ),
        ),
    ),
    Promise(
        "A transaction is decided once, by its own producer or by who fences it, and carried out whoever coordinates",
        (
            f"{COORDINATOR}/test_transaction.py::test_another_producer_id_or_epoch_is_refused_whatever_the_state",
            f"{COORDINATOR}/test_transaction.py::test_the_end_of_what_is_not_ongoing_is_answered_at_once",
            f"{COORDINATOR}/test_transaction.py::test_who_begins_aborts_the_transaction_of_the_one_before",
            f"{COORDINATOR}/test_transaction.py::test_what_was_decided_before_is_carried_out_by_the_next_coordinator",
            f"{COORDINATOR}/test_transaction_coordinator.py"
            "::test_the_markers_of_who_does_not_coordinate_any_more_are_not_sent",
            f"{COORDINATOR}/test_transaction_coordinator.py::test_the_coordinator_epoch_of_markers_is_the_leader_epoch",
            f"{COORDINATOR}/test_uncommitted_state.py::test_what_may_still_be_lost_is_neither_told_nor_carried_out",
        ),
        (
            Mutant(
                "a coordinator tells, and carries out, what it alone has",
                "kbroker/coordinator/transaction_coordinator.py",
                "            only_committed=True,\n",
                "            only_committed=False,\n",
                seeds=45,
            ),
            Mutant(
                "a fenced producer goes on",
                "kbroker/coordinator/transaction.py",
                "        return NONE if producer_epoch == record.producer_epoch < LAST_EPOCH else FENCED\n",
                "        return NONE\n",
                seeds=15,
            ),
            Mutant(
                "what was committed can be aborted",
                "kbroker/coordinator/transaction.py",
                "    (ONGOING, False): PREPARE_ABORT,\n    (COMPLETE_COMMIT, True): NONE,\n"
                "    (COMPLETE_COMMIT, False): INVALID,\n",
                "    (ONGOING, False): PREPARE_ABORT,\n    (COMPLETE_COMMIT, True): NONE,\n"
                "    (COMPLETE_COMMIT, False): NONE,\n",
                seeds=15,
            ),
            Mutant(
                "a decision is forgotten by the next coordinator",
                "kbroker/coordinator/transaction.py",
                "        return [SendMarkers(self.record)] if self.state in PREPARED and not self.is_pending else []\n",
                "        return []\n",
                seeds=50,
                seen_by=("txn", "kills", "confluent"),
            ),
            Mutant(
                "who does not coordinate any more sends markers all the same",
                "kbroker/coordinator/transaction_coordinator.py",
                "            ending.is_over = True\n",
                "            pass\n",
                seeds=90,
            ),
        ),
    ),
    Promise(
        "Where each transaction has an epoch of its own, what comes late of an ended one never gets into the next",
        (
            f"{COORDINATOR}/test_transaction.py::test_what_comes_late_of_an_ended_transaction_never_gets_into_the_next_one",
            f"{COORDINATOR}/test_transaction.py::test_an_end_without_epochs_left_hands_the_producer_to_a_fresh_id",
            "tests/kbroker/replica/test_verification.py"
            "::test_the_marker_of_the_transaction_before_leaves_the_next_one_its_right_to_append",
            "tests/kbroker/replica/test_verification.py"
            "::test_from_version_12_on_the_first_batch_adds_its_partition_whatever_the_setting",
            f"{HANDLERS}/test_transactions.py"
            "::test_a_marker_that_comes_late_a_second_time_does_not_end_the_next_transaction",
            f"{COORDINATOR}/test_transaction_coordinator.py"
            "::test_markers_say_whether_their_epoch_is_the_one_after_that_of_their_transaction",
        ),
        (
            Mutant(
                "the end leaves the epoch as it is",
                "kbroker/coordinator/transaction.py",
                "            producer_epoch=record.producer_epoch + 1,\n            state=following,\n",
                "            producer_epoch=record.producer_epoch,\n            state=following,\n",
                seeds=15,
            ),
            Mutant(
                "the next coordinator does not know the id that the producer was given",
                "kbroker/coordinator/transaction_records.py",
                "        next_producer_id=record.next_producer_id,\n",
                "",
                seeds=50,
            ),
            Mutant(
                "a marker that comes late a second time ends the transaction after its own",
                "segment/producer_state.py",
                "            self._check_ends(entry, header, verified)\n",
                "",
                seeds=50,
            ),
            Mutant(
                "nobody tells the leaders that the epoch was raised",
                "kbroker/coordinator/transaction_coordinator.py",
                "            record.client_version,\n",
                "",
                seeds=50,
            ),
            Mutant(
                "the marker of one transaction keeps the next from being appended",
                "segment/producer_state.py",
                "        return self.adds and header.is_control and header.producer_epoch == self.epoch\n",
                "        return False\n",
                seeds=100,
            ),
            Mutant(
                "a Produce that adds its partition adds it nowhere where nothing is verified",
                "kbroker/replica/replica_manager.py",
                "not (adds or self.config.transaction_partition_verification_enable):\n            return None\n",
                "not self.config.transaction_partition_verification_enable:\n            return None\n",
                seeds=15,
            ),
        ),
    ),
    Promise(
        "What Spark writes with `exactlyOnce` is there once, whoever is killed: driver, executor, coordinator",
        (
            "tests/spark_connector/test_killed_drivers.py::test_rows_come_once_at_whatever_request_a_driver_is_killed",
            "tests/spark_connector/test_exactly_once_writer.py"
            "::test_of_two_attempts_beside_each_other_only_the_one_that_spark_takes_is_written",
            "tests/spark_connector/test_exactly_once_writer.py"
            "::test_a_batch_that_comes_again_with_more_rows_is_an_error_and_no_silence",
        ),
        # The simulated world is one thread with one event loop; drivers and tasks of Spark wait in blocking sockets,
        # where that thread would stand still for good. A driver that is killed at each request is in the first test.
        (
            Mutant(
                "the next driver does not finish what was decided",
                "spark_connector/exactly_once.py",
                "        if entry is None or entry.is_done:\n",
                "        if True:\n",
            ),
            Mutant(
                "the next driver leaves open what the one before has begun",
                "spark_connector/exactly_once.py",
                "        self._abort_others(prefix_of(self._name))\n        return term\n",
                "        return term\n",
            ),
            Mutant(
                "an attempt that lost stays open",
                "spark_connector/exactly_once_writer.py",
                "winners)\n        driver.abort_losers(attempt.run)\n",
                "winners)\n",
            ),
            Mutant(
                "rows of a batch that comes again with more are left out without a word",
                "spark_connector/exactly_once_writer.py",
                "            check_rows(entry, sum(each.rows.rows for each in done), self.options.lost_batch)\n",
                "",
            ),
        ),
    ),
)
