"""The table of promises is true: its tests are there, and so is each line that a mutant breaks."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from kbroker.verify.runner import WORKLOADS
from tests.promises.table import PROMISES, ROOT, Promise
from tests.promises.trial import CLIENTS, NEMESES

GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.text[:40])
def test_every_test_of_a_promise_exists(promise: Promise) -> None:
    assert promise.tests
    for test in promise.tests:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / file).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in names, f"{test}: no such test"


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.text[:40])
def test_every_line_that_a_mutant_breaks_is_there_once(promise: Promise) -> None:
    assert promise.mutants
    for mutant in promise.mutants:
        assert (ROOT / mutant.file).read_text().count(mutant.line) == 1, f"{mutant.name}: {mutant.line!r}"
        assert mutant.broken != mutant.line
        ast.parse((ROOT / mutant.file).read_text().replace(mutant.line, mutant.broken))


def test_what_clients_can_see_is_judged_under_a_workload_and_a_nemesis_that_there_are() -> None:
    seen = [mutant.seen_by for promise in PROMISES for mutant in promise.mutants if mutant.seen_by is not None]
    assert len(seen) > 5
    assert {workload for workload, _, _ in seen} <= set(WORKLOADS)
    assert {nemesis for _, nemesis, _ in seen} <= set(NEMESES)
    assert {client for _, _, client in seen} <= set(CLIENTS)


def test_mutants_have_names_of_their_own() -> None:
    names = Counter(mutant.name for promise in PROMISES for mutant in promise.mutants)
    assert set(names.values()) == {1}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.text[:40])
def test_users_are_told_of_each_promise_in_its_words(promise: Promise) -> None:
    assert f"| {promise.text} |" in GUARANTEES


def test_what_shows_a_promise_to_users_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", GUARANTEES)) <= targets
    workloads = set(re.findall(r"`kbroker verify --workload ([a-z]+)`", GUARANTEES))
    assert workloads <= set(WORKLOADS)
    for name in re.findall(r"\]\(([a-z-]+\.md)", GUARANTEES):
        assert (ROOT / "docs" / name).exists()
