"""Rows as table, JSON and YAML."""

import io
import json
import sys

import pytest
import yaml

from kbroker.cli.output import print_object, print_rows

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


def test_names_in_a_table_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"topic": "\x1b]0;x\x07", "replicas": ["a\nb"]}], ("topic", "replicas"), "table")
    assert capsys.readouterr().out.splitlines()[1].split() == ["\\x1b]0;x\\x07", "a\\nb"]


def test_an_empty_table_says_so_on_stderr_and_empty_json_is_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], COLUMNS, "table", empty="no topics")
    assert capsys.readouterr() == ("", "no topics\n")
    print_rows([], COLUMNS, "json", empty="no topics")
    assert capsys.readouterr() == ("[]\n", "")
