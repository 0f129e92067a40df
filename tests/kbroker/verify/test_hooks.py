"""Tests for kbroker.verify.hooks: commands are run, undone, and wrong files named."""

import random
from pathlib import Path

import pytest

from kbroker.verify.hooks import HookFailed, HookNemesis, read_hooks
from kbroker.verify.nemesis import Fault


def hooks(folder: Path, text: str) -> HookNemesis:
    file = folder / "faults.yaml"
    file.write_text(text)
    return read_hooks(file)


def test_a_fault_is_done_in_the_files_folder_and_undone_with_the_same_choice(tmp_path: Path) -> None:
    nemesis = hooks(
        tmp_path,
        "faults: {kill: {do: 'echo down $broker >> said', undo: 'echo up $broker >> said', choose: {broker: [3]}}}",
    )
    assert nemesis.start("b:1") == "b:1"
    assert nemesis.inject(random.Random(1)) == Fault("kill", {"broker": 3})
    assert nemesis.inject(random.Random(1)) is None, "it holds already"
    nemesis.heal()
    nemesis.stop()
    assert (tmp_path / "said").read_text() == "down 3\nup 3\n"


def test_a_fault_that_failed_half_way_is_undone_all_the_same(tmp_path: Path) -> None:
    nemesis = hooks(tmp_path, "faults: {half: {do: 'touch made; echo no luck >&2; exit 3', undo: 'rm made'}}")
    with pytest.raises(HookFailed, match="ended with 3: no luck"):
        nemesis.inject(random.Random(1))
    assert (tmp_path / "made").exists()
    nemesis.heal()
    assert not (tmp_path / "made").exists()


def test_each_undo_is_tried_before_the_first_error_is_raised(tmp_path: Path) -> None:
    nemesis = hooks(tmp_path, "faults: {one: {do: 'true', undo: 'echo undone >> said; exit 1', choose: {n: [1, 2]}}}")
    rng = random.Random(1)
    while len(nemesis._open) < 2:
        nemesis.inject(rng)
    with pytest.raises(HookFailed, match="ended with 1"):
        nemesis.heal()
    assert (tmp_path / "said").read_text() == "undone\n" * 2


def test_a_command_that_hangs_is_ended_and_named(tmp_path: Path) -> None:
    nemesis = hooks(tmp_path, "{faults: {hang: {do: 'sleep 60'}}, timeout_seconds: 0.1}")
    with pytest.raises(HookFailed, match=r"'sleep 60' took more than 0\.1 s"):
        nemesis.inject(random.Random(1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "no `faults:`"),
        ("faults: {}", "no `faults:`"),
        ("faults: {kill: {undo: x}}", "kill has no `do:`"),
        ("faults: {kill: {do: x, how: y}}", "kill has how; known are choose, do, undo, weight"),
        ("faults: {kill: {do: x, choose: {a: 1}}}", "choose of kill must name lists"),
        ("faults: {kill: {do: x, weight: 0}}", "weight of kill is 0"),
        ("{faults: {kill: {do: x}}, timeout_seconds: -1}", "timeout_seconds is -1"),
        ("faults: {", "the nemesis is none, proxy or a YAML file"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(HookFailed, match=said):
        hooks(tmp_path, text)
