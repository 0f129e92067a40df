"""Rows as table, JSON and YAML."""

import io
import json
import re
import sys
from unittest.mock import Mock

import pytest
import yaml

from kbroker.cli.options import OutputFormat
from kbroker.cli.output import for_terminal, is_table, print_object, print_rows, rich_table, say, yaml_text

ROWS = [
    {"topic": "flights", "partitions": 12, "internal": False, "replicas": [1, 2], "leader": None},
    {
        "topic": "a-much-longer-name-than-that " + "x" * 200,
        "partitions": 1,
        "internal": True,
        "replicas": [],
        "leader": 1,
    },
]
COLUMNS = ("topic", "partitions", "internal", "replicas", "leader")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_outside_a_terminal_has_one_plain_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, COLUMNS, "table")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].split() == list(COLUMNS)
    assert lines[1].split() == ["flights", "12", "no", "1,2", "-"]
    assert "\x1b" not in "".join(lines)


def test_a_wide_table_has_all_that_rows_have_also_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_rows(ROWS, ("topic",), "wide")
    lines = terminal.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].split() == list(COLUMNS)
    assert "\x1b" not in terminal.getvalue()


def test_a_table_in_a_terminal_is_drawn_by_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_rows([{"topic": "[bold]not markup[/bold]"}], ("topic",), "table")
    assert "[bold]not markup[/bold]" in terminal.getvalue()


WIDE = {"topic": "flights-" + "x" * 40, "leader_epoch": 12, "replicas": [1, 2, 3], "end_offset": 12345678901}


@pytest.mark.parametrize(("columns", "lines"), [(100, 3), (50, 7)])
def test_a_table_in_a_narrow_terminal_folds_long_texts_never_numbers_or_short_words(
    monkeypatch: pytest.MonkeyPatch, columns: int, lines: int
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_rows([WIDE], tuple(WIDE), "table")
    text = re.sub("\x1b\\[[0-9;]*m", "", terminal.getvalue())
    shown = text.splitlines()
    assert len(shown) == lines, text
    assert max(map(len, shown)) <= columns
    assert {"12345678901", "1,2,3", "12", "leader", "epoch", "offset"} <= set(text.split())
    assert "".join(line.split()[0] for line in shown if "xx" in line) == WIDE["topic"]


@pytest.mark.timeout(10)
def test_the_longest_text_is_made_to_fit_as_fast_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.cells.cell_len", lambda text: 10**12 if text == "long" else len(text))
    table = rich_table([{"offset": 1, "value": "long"}], ("offset", "value"), 80)
    assert [column.width for column in table.columns] == [6, 80 - 3 - 6]


def test_a_table_that_no_folding_makes_narrow_enough_has_a_line_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    print_rows([WIDE], tuple(WIDE), "table")
    heading, line = terminal.getvalue().splitlines()
    assert heading.split() == ["topic", "leader", "epoch", "replicas", "end", "offset"]
    assert line.split() == [WIDE["topic"], "12", "1,2,3", "12345678901"]


def test_json_and_yaml_hold_the_values_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, COLUMNS, "json")
    assert json.loads(capsys.readouterr().out) == ROWS
    print_rows(ROWS, COLUMNS, "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == ROWS


def test_documents_that_follow_each_other_are_read_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        print_rows(ROWS, COLUMNS, "yaml", one_of_many=True)
        print_object({"a": 1}, "yaml", one_of_many=True)
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == [ROWS, {"a": 1}] * 2


def test_a_yaml_document_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Mock(wraps=yaml.safe_dump_all)
    monkeypatch.setattr(yaml, "safe_dump_all", made)
    assert yaml_text([{"a": "ö"}], explicit_start=False) == "a: ö\n"
    assert made.call_count == 1


def test_names_in_a_table_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"topic": "\x1b]0;x\x07", "replicas": ["a\nb"]}], ("topic", "replicas"), "table")
    assert capsys.readouterr().out.splitlines()[1].split() == ["\\x1b]0;x\\x07", "a\\nb"]


def test_an_empty_table_says_so_on_stderr_and_empty_json_is_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], COLUMNS, "table", empty="no topics")
    assert capsys.readouterr() == ("", "no topics\n")
    print_rows([], COLUMNS, "json", empty="no topics")
    assert capsys.readouterr() == ("[]\n", "")


HOSTILE = "\x1b[2J\x07\x9b31m\u202e\u2066\x7f\x00 ö"


@pytest.mark.parametrize("output_format", ["table", "wide", "json", "yaml"])
def test_nothing_that_is_told_steers_a_terminal(
    output_format: OutputFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    print_rows([{"group": HOSTILE, "ö": "ö"}], ("group", "ö"), output_format)
    text = capsys.readouterr().out
    assert not set(HOSTILE).difference(" ö[2J31m").intersection(text)
    if not is_table(output_format):
        assert yaml.safe_load(text) == [{"group": HOSTILE, "ö": "ö"}], "JSON is YAML"


def test_a_line_is_seen_at_once_also_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe))
    say("group g: Stable")
    assert pipe.getvalue() == b"group g: Stable\n"


def test_a_line_with_names_of_others_does_not_either(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"group {HOSTILE}: Stable\nanother")
    assert capsys.readouterr().out.count("\n") == 1
    say(HOSTILE, err=True)
    assert "\x1b" not in capsys.readouterr().err


def test_records_in_a_terminal_keep_their_lines_and_what_is_no_text_is_escaped() -> None:
    assert for_terminal(b"a\tb\n\x1b[2J\xff\xc3\xb6\n") == "a\tb\n\\x1b[2J\\xffö\n".encode()
