"""The driver of writes that happen once, without Spark: tasks are transactions made here, deaths are exceptions."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kbroker import Admin, Producer, TimedOut
from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_transactions import Owner, PlainTransactions
from kbroker.client.range_reader import RangeReader
from kbroker.client.types import AccessRule
from kbroker.protocol.errors import KafkaError
from kbroker.protocol.java_hash import partition_for
from kbroker.protocol.messages.offsets import LATEST
from kbroker.security.acls import CLUSTER_NAME, AclOperation, AclPattern, AclResource
from kbroker.spark_connector.write_options import WriteOptions
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.client.topics import create_topic, wait_until
from tests.kbroker.token_broker import login_of, make_token_broker

exactly_once = pytest.importorskip("kbroker.spark_connector.exactly_once")
ledger = pytest.importorskip("kbroker.spark_connector.ledger")
TRANSACTIONS_TOPIC = exactly_once.TRANSACTIONS_TOPIC
LedgerError, Term = ledger.LedgerError, exactly_once.Term


class Died(BaseException):
    """As a process that is killed: nobody else hears of it."""


class Query:
    """A query as the driver's side sees it; `run` changes with each start."""

    def __init__(self, bootstrap: str, topic: str, **options: Any) -> None:
        self.bootstrap, self.topic, self.run = bootstrap, topic, "first"
        self.options = WriteOptions(bootstrap, exactly_once=True, name=topic, ledger=f"{topic}-ledger", **options)

    def begin(self, **options: Any) -> Any:
        given = WriteOptions(**{**{n: getattr(self.options, n) for n in WriteOptions.__slots__}, **options})
        with exactly_once.driver_of(given, self.topic, streaming=True) as driver:
            return driver.begin()

    def write(self, term: Any, batch: int, values: list[str], attempt: int = 0) -> list[Any]:
        """A task for each value, left open; as transactional_tasks does it."""
        done = []
        for task, value in enumerate(values):
            name = exactly_once.transactional_id(self.topic, self.run, batch, task, attempt, term.places)
            with Producer(self.bootstrap, transactional_id=name, transaction_timeout_ms=term.timeout_ms) as producer:
                producer.begin()
                offset = producer.send_and_wait(self.topic, value.encode(), partition=0).offset
                handed = producer.hand_over()
                assert handed is not None
                done.append(ledger.Participant(Owner(name, *handed), 1, ((self.topic, 0, offset, offset),)))
        return done

    def commit(self, term: Any, batch: int, done: list[Any]) -> None:
        with exactly_once.driver_of(self.options, self.topic, streaming=True) as driver:
            driver.decide(term, "query", batch, done)
            driver.abort_losers(self.run)

    def abort(self, term: Any, batch: int, done: list[Any]) -> bool:
        with exactly_once.driver_of(self.options, self.topic, streaming=True) as driver:
            aborted: bool = driver.abort(term, "query", batch, done)
            return aborted

    def read(self) -> list[str]:
        """All that is committed; nothing may be open or hidden by something open."""
        with PlainCluster(self.bootstrap, {"isolation_level": "read_committed"}, retry_for=10) as cluster:
            assert PlainTransactions(cluster).open_ones(exactly_once.prefix_of(self.topic)) == []
            place = (self.topic, 0)
            end = cluster.offsets([place], LATEST, read_committed=False)[place]
            batches = RangeReader(cluster, *place, 0, end) if end else ()
            return sorted(value.decode() for batch in batches for value in batch["value"].to_pylist())


@pytest.fixture
def query(bootstrap: str, topic_name: str) -> Query:
    create_topic(bootstrap, topic_name, partitions=1)
    return Query(bootstrap, topic_name)


@contextmanager
def dying(name: str, calls: int) -> Iterator[None]:
    """The process dies at its next such call but `calls`; or, at "end", when it has committed that many tasks."""
    whole = getattr(PlainTransactions, name)
    left = [calls]

    def counted(self: Any, *arguments: Any, **more: Any) -> Any:
        if name == "end" and arguments[0][0].transactional_id.endswith("driver"):
            return whole(self, *arguments, **more)
        if name == "end":
            whole(self, arguments[0][: left[0]], **more)
        if name == "end" or not left[0]:
            raise Died
        left[0] -= 1
        return whole(self, *arguments, **more)

    setattr(PlainTransactions, name, counted)
    try:
        with pytest.raises(Died):
            yield
    finally:
        setattr(PlainTransactions, name, whole)


@pytest.mark.slow
def test_batches_are_written_and_remembered(query: Query) -> None:
    for batch in range(3):
        term = query.begin()
        query.commit(term, batch, query.write(term, batch, [f"{batch}-a", f"{batch}-b"]))
    assert query.read() == ["0-a", "0-b", "1-a", "1-b", "2-a", "2-b"]
    entry = query.begin().entry
    assert (entry.batch, entry.is_done, entry.participants) == (2, True, ())
    assert ledger.is_written(entry, "query", 2)


@pytest.mark.parametrize("places", [1, 3, 31, 32, 50, 93, 300])
def test_ids_of_a_query_are_in_its_drivers_partition_each_with_its_own(places: int) -> None:
    tasks = [
        exactly_once.transactional_id("query", "run", batch, task, attempt, places)
        for batch in range(4)
        for task in range(20)
        for attempt in (0, 1)
    ]
    assert len(set(tasks)) == 160
    assert all(each.startswith(exactly_once.run_prefix("query", "run")) for each in tasks)
    home = partition_for(exactly_once.driver_id("query"), places)
    assert {partition_for(each, places) for each in tasks} == {home}
    assert exactly_once.transactional_id("query", "run", 5, 7, 1, places) == tasks[40 + 2 * 7 + 1], "made anew, alike"


def test_participants_are_coordinated_where_the_decision_is(query: Query) -> None:
    term = query.begin()
    with PlainCluster(query.bootstrap) as cluster:
        places = len(cluster.partitions([TRANSACTIONS_TOPIC]))
    assert term.places == places > 1
    done = query.write(term, 0, ["a", "b", "c", "d"])
    used = {partition_for(each.owner.transactional_id, places) for each in done}
    assert used == {partition_for(term.owner.transactional_id, places)}
    query.commit(term, 0, done)
    assert query.read() == ["a", "b", "c", "d"]


@pytest.mark.slow
@pytest.mark.parametrize("ended", [0, 1])
@pytest.mark.parametrize("places", [0, 7], ids=["nowhere", "among others"])
def test_what_was_decided_is_finished_though_ids_are_placed_otherwise_by_then(
    query: Query, places: int, ended: int
) -> None:
    """As after an upgrade from a version that placed none, or where the topic has more partitions now."""
    term = replace(query.begin(), places=places)
    done = query.write(term, 5, ["a", "b"])
    query.write(term, 5, ["loser"], attempt=1)
    with dying("end", ended):
        query.commit(term, 5, done)
    query.run = "second"
    now = query.begin()
    assert query.read() == ["a", "b"]
    query.write(term, 6, ["undecided"])
    term = query.begin()
    assert query.read() == ["a", "b"], "what they left open is found by how its ids begin"
    assert now.places == term.places > 0
    term = replace(term, places=11)
    query.commit(term, 6, query.write(term, 6, ["c"]))
    assert query.read() == ["a", "b", "c"]


def test_a_driver_that_dies_before_its_decision_has_written_nothing(query: Query) -> None:
    term = query.begin()
    done = query.write(term, 0, ["a", "b"])
    with dying("write", 0):
        query.commit(term, 0, done)
    query.run = "second"
    term = query.begin()
    assert query.read() == []
    query.commit(term, 0, query.write(term, 0, ["a", "b"]))
    assert query.read() == ["a", "b"]


@pytest.mark.parametrize("ended", [0, 1, 3])
def test_what_was_decided_is_finished_by_the_next_driver(query: Query, ended: int) -> None:
    term = query.begin()
    done = query.write(term, 5, ["a", "b", "c"])
    query.write(term, 5, ["loser"], attempt=1)
    with dying("end", ended):
        query.commit(term, 5, done)
    query.run = "second"
    term = query.begin()
    assert ledger.is_written(term.entry, "query", 5)
    assert query.read() == ["a", "b", "c"], "the whole batch, and of the attempt that lost nothing"
    query.commit(term, 6, query.write(term, 6, ["d"]))
    assert query.read() == ["a", "b", "c", "d"]


def test_a_batch_that_failed_is_aborted_unless_it_was_decided(query: Query) -> None:
    term = query.begin()
    done = query.write(term, 0, ["failed"])
    assert query.abort(term, 0, done)
    assert query.read() == []
    term = query.begin()
    done = query.write(term, 0, ["a", "b"])
    with dying("end", 1):
        query.commit(term, 0, done)
    assert not query.abort(term, 0, done), "Spark aborts what it could not commit, but this is decided"
    query.begin()
    assert query.read() == ["a", "b"]


@pytest.mark.slow
def test_a_batch_whose_end_the_ledger_does_not_hear_of_is_written_all_the_same(query: Query) -> None:
    def fail(self: Any, *arguments: Any) -> None:
        if b'"done"' in arguments[3]:
            raise TimedOut("no answer")
        whole(self, *arguments)

    term, whole = query.begin(), PlainTransactions.write
    done = query.write(term, 0, ["a"])
    PlainTransactions.write = fail  # type: ignore[assignment, method-assign]
    try:
        query.commit(term, 0, done)
    finally:
        PlainTransactions.write = whole  # type: ignore[method-assign]
    assert ledger.is_written(query.begin().entry, "query", 0)
    assert query.read() == ["a"]


def test_of_two_drivers_one_is_shut_out_and_told_by_whom(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    old = query.begin()
    late = query.write(old, 0, ["late"])
    monkeypatch.setattr(exactly_once, "this_driver", lambda: "host other, process 7")
    query.run = "second"
    new = query.begin()
    query.commit(new, 0, query.write(new, 0, ["a"]))
    later = Query(query.bootstrap, query.topic).write(old, 0, ["later"])  # its executors do not know yet
    monkeypatch.undo()
    for done in (late, later):
        with pytest.raises(LedgerError, match=r"taken over the query .*: host other, process 7\. Two queries must not"):
            query.commit(old, 0, done)
    assert not query.abort(old, 0, later)
    new = query.begin()
    query.commit(new, 1, query.write(new, 1, ["b"]))
    assert query.read() == ["a", "b"]


def aborted_by_time(query: Query, done: list[Any]) -> None:
    """As the coordinator does it."""
    with PlainCluster(query.bootstrap) as cluster:
        for each in done:
            PlainTransactions(cluster).take(each.owner.transactional_id, 10_000)


def test_a_batch_that_took_too_long_is_not_decided(query: Query) -> None:
    term = query.begin()
    done = query.write(term, 0, ["a", "b"])
    aborted_by_time(query, done[1:])
    with pytest.raises(LedgerError, match=r"batch 0 is not written: the transactions of 1 of its 2 tasks are not open"):
        query.commit(term, 0, done)
    assert query.abort(term, 0, done)
    assert query.begin().entry is None
    assert query.read() == []


@pytest.mark.parametrize(("wish", "batch"), [("7 skip", 7), ("7 again", 6)])
def test_what_was_decided_and_left_for_too_long_is_an_error_until_somebody_says_how_to_go_on(
    query: Query, wish: str, batch: int
) -> None:
    term = query.begin()
    done = query.write(term, 7, ["a", "b"])
    with dying("end", 1):
        query.commit(term, 7, done)
    aborted_by_time(query, done[1:])
    for lost_batch in ("", "6 skip"):
        with pytest.raises(LedgerError, match=rf"1 of its 2 rows.*{query.topic}-0 offsets \d+ to \d+") as problem:
            query.begin(lost_batch=lost_batch)
    assert '"7 again" writes the whole batch again' in str(problem.value)
    entry = query.begin(lost_batch=wish).entry
    assert (entry.batch, entry.is_done) == (batch, True)
    assert query.begin().entry == entry
    assert query.read() == ["a"]


def test_a_write_that_was_left_decided_is_finished_by_the_next_one(query: Query) -> None:
    def write(name: str) -> None:
        with exactly_once.driver_of(query.options, name, streaming=False) as driver:
            term = driver.begin()
            driver.decide(term, name, 0, query.write(term, 0, [name]))

    beside = next(name for name in map(str, range(1_000)) if shares_a_partition(query, name))
    with exactly_once.driver_of(query.options, beside, streaming=True) as driver:
        driver.begin()  # a query whose entries are among those of the writes
    query.run = "left"
    with dying("end", 0):
        write("left")
    query.run = "next"
    write("next")
    assert query.read() == ["left", "next"]
    with PlainCluster(query.bootstrap, {"isolation_level": "read_committed"}) as cluster:
        topic = exactly_once.LedgerTopic(cluster, query.options.ledger)
        left = topic.read(topic.place_of(exactly_once.BATCH_WRITES))
        assert list(left) == [b"driver\0" + beside.encode()], "nothing is left to finish"


def shares_a_partition(query: Query, name: str) -> bool:
    with PlainCluster(query.bootstrap) as cluster:
        topic = exactly_once.LedgerTopic(cluster, query.options.ledger)
        return bool(topic.place_of(name) == topic.place_of(exactly_once.BATCH_WRITES))


def test_brokers_say_how_long_transactions_may_be_open_and_a_query_may_ask_for_less(query: Query) -> None:
    assert query.begin().timeout_ms == 900_000
    assert query.begin(transaction_timeout_ms=20_000).timeout_ms == 20_000


def test_options_of_producers_are_no_hindrance_and_wrong_ones_are_told(query: Query) -> None:
    assert query.begin(client={"compression.type": "lz4", "acks": "all", "request.timeout.ms": "20000"})
    with pytest.raises(ValueError, match=r"kafka\.\* is wrong: request.timeout.ms"):
        query.begin(client={"request.timeout.ms": "soon"})


@pytest.mark.slow
def test_the_rights_that_the_documentation_names_are_enough(make_broker: MakeBroker, topic_name: str) -> None:
    authorizer = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    broker, port = make_token_broker(make_broker, authorizer)
    create_topic(broker.bootstrap, topic_name, partitions=1)
    login = {key.replace("_", "."): value for key, value in login_of("alice").items()}
    query = Query(f"127.0.0.1:{port}", topic_name, client=login)

    def is_written(batch: int) -> bool:
        try:
            write(batch)
        except KafkaError:
            return False
        return True

    def write(batch: int) -> None:
        term = query.begin()
        name = exactly_once.transactional_id(topic_name, query.run, batch, 0, 0, term.places)
        with PlainCluster(query.bootstrap, login) as cluster:
            cluster.partitions([topic_name])
            owner = PlainTransactions(cluster).take(name, term.timeout_ms)
            PlainTransactions(cluster).write(owner, (topic_name, 0), b"", b"%d" % batch, 0)
        query.commit(term, batch, [ledger.Participant(owner, 1)])

    assert not is_written(0)
    rights = [
        (AclResource.TOPIC, topic_name, AclOperation.WRITE),
        (AclResource.CLUSTER, CLUSTER_NAME, AclOperation.DESCRIBE_CONFIGS),
    ]
    for operation in (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE):
        rights.append((AclResource.TOPIC, query.options.ledger, operation))
    rules = [AccessRule(resource, name, "User:alice", operation) for resource, name, operation in rights]
    for operation in (AclOperation.WRITE, AclOperation.DESCRIBE):
        ids = AccessRule(AclResource.TRANSACTIONAL_ID, exactly_once.PREFIX, "User:alice", operation)
        rules.append(replace(ids, pattern=AclPattern.PREFIXED))
    with Admin(broker.bootstrap) as admin:
        admin.create_acls(rules)
    wait_until(lambda: is_written(0))  # brokers hear of rules a little later
    assert query.begin().places == 0, "ids are spread"
    write(1)
    with Admin(broker.bootstrap) as admin:
        admin.create_acls([AccessRule(AclResource.TOPIC, TRANSACTIONS_TOPIC, "User:alice", AclOperation.DESCRIBE)])
    wait_until(lambda: query.begin().places > 0)
    query.bootstrap = broker.bootstrap
    assert query.read() == ["0", "1"]
