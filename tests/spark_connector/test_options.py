"""Options of the data source: what is taken, what is refused, and how it is said."""

import pytest

from spark_connector.offset_ranges import EARLIEST, LATEST
from spark_connector.options import OptionError, include_headers, read_options

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "flights"}


def test_defaults_are_those_of_sparks_own_source() -> None:
    options = read_options(BASE)
    assert options.bootstrap == "127.0.0.1:9092"
    assert options.selection.subscribe == ("flights",)
    assert options.starting.default == EARLIEST
    assert options.ending.default == LATEST
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_names_are_read_whatever_their_case() -> None:
    options = read_options({"KAFKA.bootstrap.servers": "h:1", "SUBSCRIBE": "a, b,a", "includeheaders": "TRUE"})
    assert options.selection.subscribe == ("a", "b")
    assert options.include_headers


def test_kafka_options_go_to_the_client_without_their_prefix() -> None:
    options = read_options({**BASE, "kafka.fetch.max.bytes": "1000"})
    assert dict(options.client) == {"fetch.max.bytes": "1000"}


def test_offsets_per_partition_are_read_from_json() -> None:
    options = read_options({**BASE, "startingOffsets": '{"flights":{"0":5,"1":-2}}'})
    assert options.starting.by_partition == {("flights", 0): 5, ("flights", 1): EARLIEST}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"subscribe": ""}, "exactly one of"),
        ({"assign": '{"a":[0]}'}, "exactly one of"),
        ({"startingOffset": "earliest"}, 'did you mean "startingOffsets"'),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"startingOffsets": "yesterday"}, "startingOffsets is 'yesterday'"),
        ({"startingOffsets": '{"flights":{"0":-3}}'}, "-3 is not an offset"),
        ({"startingOffsets": '{"flights":7}'}, "must be"),
        ({"includeHeaders": "yes"}, 'must be "true" or "false"'),
        ({"failOnDataLoss": "1"}, 'must be "true" or "false"'),
    ],
)
def test_a_wrong_option_is_refused_by_name(changed: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refusal:
        read_options({**BASE, **changed})
    assert said in str(refusal.value)


def test_patterns_and_assignments_choose_partitions_too() -> None:
    only = {"kafka.bootstrap.servers": "h:1"}
    assert read_options({**only, "assign": '{"b":[1,0],"a":[2]}'}).selection.assign == (
        ("a", 2),
        ("b", 0),
        ("b", 1),
    )
    assert read_options({**only, "subscribePattern": "fl.*"}).selection.subscribe_pattern == "fl.*"
    for wrong in ({"subscribePattern": "("}, {"assign": "flights"}, {"assign": "{}"}):
        with pytest.raises(OptionError):
            read_options({**only, **wrong})


def test_the_schema_depends_on_include_headers_alone() -> None:
    assert not include_headers({})
    assert include_headers({"includeHeaders": "true"})
