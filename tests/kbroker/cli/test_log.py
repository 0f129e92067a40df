"""`kbroker log dump` and `kbroker log verify`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kbroker.cli.log import app
from kbroker.cluster.topic_names import TRANSACTIONS_TOPIC
from kbroker.coordinator.transaction import ONGOING, TransactionRecord
from kbroker.coordinator.transaction_records import transaction_key, transaction_value
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.log import AppendOrigin
from tests.kbroker.cli.commands import fail, kbroker
from tests.segment.batches import NOW, batch, fill, new_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = new_log(tmp_path)
    fill(log, 3)
    log.close()
    return log.directory


def test_dump_prints_batches_and_records(folder: Path) -> None:
    done = CliRunner().invoke(app, ["dump", str(folder), "--format", "json"])
    assert done.exit_code == 0
    (document,) = json.loads(done.stdout)
    assert [row["base_offset"] for row in document["entries"]] == [0, 1, 2]
    done = CliRunner().invoke(app, ["dump", str(folder), "--records"])
    assert "vvvvv" in done.stdout
    done = CliRunner().invoke(app, ["dump", str(folder), "-i", "-s", "-c", "--format", "json"])
    assert {Path(each["file"]).suffix for each in json.loads(done.stdout)} >= {".log", ".index", ".metadata"}


def test_dump_shows_transactions_their_markers_and_what_was_aborted(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for sequence, decision in enumerate((ControlType.COMMIT, ControlType.ABORT)):
        who: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3, "base_sequence": sequence}
        log.append_as_leader(batch(transactional=True, **who), 0, NOW)
        marker = control_batch(decision, 7, 3, coordinator_epoch=5, timestamp_ms=NOW)
        log.append_as_leader(marker, 0, NOW, AppendOrigin.COORDINATOR)
    log.close()
    done = CliRunner().invoke(app, ["dump", str(log.directory), "-i", "-s", "--format", "json"])
    found = {Path(each["file"]).suffix: each["entries"] for each in json.loads(done.stdout)}
    said = [(row["transactional"], row["control"], row["marker"]) for row in found[".log"]]
    assert said == [
        (True, False, None),
        (True, True, "COMMIT (coordinator epoch 5)"),
        (True, False, None),
        (True, True, "ABORT (coordinator epoch 5)"),
    ]
    (aborted,) = found[".txnindex"]
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (7, 2, 3)
    (producer,) = found[".snapshot"]
    assert (producer["producer_id"], producer["producer_epoch"], producer["coordinator_epoch"]) == (7, 3, 5)
    assert "ABORT (coordinator epoch 5)" in CliRunner().invoke(app, ["dump", str(log.directory)]).stdout


def test_dump_tells_what_coordinators_have_written(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    record = TransactionRecord(7, 3, 60_000, ONGOING, frozenset({("orders", 1)}), NOW, NOW)
    builder = BatchBuilder()
    builder.append(transaction_key("payments"), transaction_value(record), (), NOW)
    builder.append(transaction_key("payments"), None, (), NOW)
    log.append_as_leader(builder.build(), 0, NOW, AppendOrigin.COORDINATOR)
    log.close()
    folder = log.directory.rename(tmp_path / f"{TRANSACTIONS_TOPIC}-3")
    done = CliRunner().invoke(app, ["dump", str(folder), "--records", "--format", "json"])
    first, last = json.loads(done.stdout)[0]["entries"]
    assert first["key"] == last["key"] == {"type": "transaction", "transactional_id": "payments"}
    assert first["value"]["state"] == "Ongoing"
    assert last["value"] is None
    table = CliRunner().invoke(app, ["dump", str(folder / f"{0:020d}.log"), "--records"]).stdout
    assert "type=transaction transactional_id=payments" in table
    assert "transaction_partitions={topic=orders partition_ids=1}" in table


def test_verify_exits_with_1_and_names_file_and_position(folder: Path) -> None:
    assert CliRunner().invoke(app, ["verify", str(folder)]).exit_code == 0
    file = folder / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    done = CliRunner().invoke(app, ["verify", str(folder)])
    assert done.exit_code == 1
    assert f"{file}, position " in done.stdout
    assert "checksum" in done.stdout


@pytest.mark.parametrize("arguments", [("dump", "--records"), ("verify",)])
def test_of_a_batch_that_is_cut_it_is_said_how_much_is_there(arguments: tuple[str, ...], folder: Path) -> None:
    file = folder / f"{0:020d}.log"
    data = file.read_bytes()
    (document,) = json.loads(CliRunner().invoke(app, ["dump", str(file), "--format", "json"]).stdout)
    last = document["entries"][-1]["position"]
    file.write_bytes(data[:-7])
    done = kbroker("log", *arguments, str(file))
    assert done.returncode == 1
    assert f"{len(data) - last} bytes, {len(data) - last - 7} are there" in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_a_folder_without_logs_is_no_folder_without_damage(command: str, folder: Path) -> None:
    (folder.parent / "broker-1").mkdir()
    done = kbroker("log", command, str(folder.parent / "broker-1"))
    assert (done.returncode, done.stderr) == (1, f"kbroker: {folder.parent / 'broker-1'}: no files of a log here\n")
    data = folder.parent / "broker-1" / "data"
    data.mkdir()
    folder.rename(data / folder.name)
    done = kbroker("log", command, str(data.parent))
    assert (done.returncode, done.stderr) == (
        1,
        f"kbroker: {data.parent}: no files of a log here; there are in {data}\n",
    )
    assert kbroker("log", command, str(data)).returncode == 0


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_a_file_of_something_else_is_named_once_and_not_read(command: str, tmp_path: Path) -> None:
    other = tmp_path / "passwd"
    other.write_text("root:x:0:0::/root:/bin/bash\n")
    assert fail("log", command, str(other)) == f"kbroker: {other}: no file of a log directory, by its name\n"
