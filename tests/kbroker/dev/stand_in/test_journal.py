"""The stand-in's folder: what was flushed is there again, a torn end is cut off, damage is told."""

import os
from pathlib import Path

import pytest

from kbroker.dev.stand_in.journal import Journal, JournalError
from kbroker.dev.stand_in.operations import Create, Mode, SetData
from kbroker.dev.stand_in.tree import Client, Tree

US = Client(1)


def opened(folder: Path, **options: int) -> tuple[Journal, Tree]:
    journal = Journal(str(folder), **options)  # type: ignore[arg-type]
    return journal, journal.open(now_ms=0)


def crash(journal: Journal) -> None:
    """What the end of the process does."""
    journal._let_go()


def logs(folder: Path) -> list[Path]:
    return sorted((folder / "stand-in").glob("log.*"))


def contents(tree: Tree) -> dict[str, object]:
    tree.check()
    return {path: (node.stat(), node.data, node.acl) for path, node in tree.nodes.items()}


def filled(folder: Path, writes: int = 20, **options: int) -> tuple[Journal, Tree]:
    journal, tree = opened(folder, **options)
    tree.open_session(1, 6000, b"p", now_ms=1)
    tree.write(Create("/a", b""), US, now_ms=2)
    tree.write(Create("/e", b"", Mode.EPHEMERAL), US, now_ms=2)
    for number in range(writes):
        tree.write(SetData("/a", b"%d" % number), US, now_ms=number)
        journal.flush()
    return journal, tree


@pytest.mark.parametrize("is_in_order", [True, False])
def test_what_was_flushed_is_there_again(tmp_path: Path, is_in_order: bool) -> None:
    journal, tree = filled(tmp_path)
    before = contents(tree)
    if is_in_order:
        journal.close()
        assert len(list((tmp_path / "stand-in").glob("snapshot.*"))) == 1
    else:
        tree.write(Create("/unflushed"), US, now_ms=3)
        crash(journal)
    for _ in range(3):
        journal, again = opened(tmp_path)
        assert contents(again) == before
        assert again.sessions[1].password == b"p"
        assert again.ephemerals(1) == ["/e"]
        assert again.zxid > tree.zxid
        tree = again
        crash(journal)


def test_each_start_has_zxids_above_all_that_were_seen(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        journal, tree = opened(tmp_path)
        tree.open_session(len(seen) + 1, 6000, b"", now_ms=0)
        seen.append(tree.zxid)
        crash(journal)
    assert seen == [(1 << 32) + 1, (2 << 32) + 1, (3 << 32) + 1]


def test_the_end_that_a_crash_tore_is_cut_off_wherever_it_tore(tmp_path: Path) -> None:
    journal, _ = filled(tmp_path, writes=3)
    crash(journal)
    [log] = logs(tmp_path)
    whole = log.read_bytes()
    found = set()
    for size in (*range(0, len(whole), 7), len(whole)):
        for end in (b"", bytes(100)):
            log.write_bytes(whole[:size] + (end if size >= 8 else b""))
            for other in logs(tmp_path)[1:]:
                other.unlink()
            journal, again = opened(tmp_path)
            again.check()
            node = again.nodes.get("/a")
            found.add(node.data if node is not None else None)
            if size in (0, len(whole)):
                assert journal.dropped_bytes == len(end) * (size > 0)
            crash(journal)
    assert found == {None, b"", b"0", b"1", b"2"}


def test_damage_in_the_middle_is_told_and_nothing_is_cut(tmp_path: Path) -> None:
    journal, _ = filled(tmp_path, writes=5)
    crash(journal)
    [log] = logs(tmp_path)
    whole = log.read_bytes()
    for at in range(0, len(whole) // 2, 7):
        log.write_bytes(damaged := whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(JournalError, match=r"log\.\w+ is damaged"):
            opened(tmp_path)
        assert log.read_bytes() == damaged


def test_a_torn_log_that_is_not_the_last_is_damage(tmp_path: Path) -> None:
    journal, _ = filled(tmp_path)
    crash(journal)
    journal, tree = opened(tmp_path)
    tree.write(SetData("/a", b"later"), US, now_ms=1)
    journal.flush()
    crash(journal)
    first = logs(tmp_path)[0]
    first.write_bytes(first.read_bytes()[:-3])
    with pytest.raises(JournalError, match="is damaged"):
        opened(tmp_path)


def test_a_long_log_becomes_a_snapshot_and_what_is_not_needed_goes(tmp_path: Path) -> None:
    journal, tree = filled(tmp_path, writes=200, max_log_bytes=2000)
    before = contents(tree)
    assert len(logs(tmp_path)) == 1
    assert sum(path.stat().st_size for path in (tmp_path / "stand-in").iterdir()) < 4000
    crash(journal)
    journal, again = opened(tmp_path)
    assert contents(again) == before
    crash(journal)


def test_a_snapshot_that_was_not_finished_is_not_looked_at(tmp_path: Path) -> None:
    journal, tree = filled(tmp_path)
    crash(journal)
    (tmp_path / "stand-in" / "snapshot.tmp").write_bytes(b"half")
    journal, again = opened(tmp_path)
    assert contents(again) == contents(tree)
    crash(journal)


def test_a_damaged_snapshot_is_told(tmp_path: Path) -> None:
    journal, _ = filled(tmp_path)
    journal.close()
    [snapshot] = (tmp_path / "stand-in").glob("snapshot.*")
    whole = snapshot.read_bytes()
    for at in range(0, len(whole), 11):
        snapshot.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(JournalError, match=r"snapshot\.\w+ is damaged"):
            opened(tmp_path)


def test_two_on_one_folder_and_a_folder_of_a_real_one_are_refused(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path / "a")
    with pytest.raises(JournalError, match="another ZooKeeper or stand-in runs on"):
        opened(tmp_path / "a")
    journal.close()
    opened(tmp_path / "a")[0].close()
    (tmp_path / "b" / "version-2").mkdir(parents=True)
    with pytest.raises(JournalError, match="holds the data of a real ZooKeeper"):
        opened(tmp_path / "b")
    assert not (tmp_path / "b" / "stand-in").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot use the data directory"):
        opened(tmp_path / "file" / "data")


def test_it_syncs_before_anybody_hears_of_it_when_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    journal, _ = filled(tmp_path / "a", writes=3)
    crash(journal)
    assert synced == []
    journal, _ = filled(tmp_path / "b", writes=3, sync=True)
    crash(journal)
    assert len(synced) == 4
