"""Structs made without their constructor, in the form that interpreted modules use; the compiled form at its edges."""

import gc
from typing import Any

import pytest

from kbroker.protocol import codec, slots
from kbroker.protocol.messages.groups import HeartbeatResponse
from kbroker.protocol.messages.offsets import ListOffsetsRequest
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.protocol.interpreted import load_interpreted

INTERPRETED = load_interpreted()


def test_a_struct_is_made_and_filled_without_its_constructor() -> None:
    struct = slots.new(HeartbeatResponse)
    place = slots.place_of(HeartbeatResponse, "error_code")
    slots.store(struct, place, 7)
    assert slots.load(struct, place) == struct.error_code == 7


@pytest.mark.parametrize("form", [codec, INTERPRETED], ids=["installed", "interpreted"])
def test_a_struct_of_another_class_is_refused_before_its_fields_are_looked_at(form: Any) -> None:
    stranger: Any = ProduceRequest.TopicProduceData(name="orders", partition_data=[])
    with pytest.raises(
        TypeError, match=r"ProduceRequest\.TopicProduceData where ProduceResponse\.TopicProduceResponse"
    ):
        form.encode(ProduceResponse(responses=[stranger]), 9)
    with pytest.raises(TypeError, match="int where"):
        form.encode(ProduceResponse(responses=[5]), 9)  # type: ignore[list-item]


@pytest.mark.parametrize("form", [codec, INTERPRETED], ids=["installed", "interpreted"])
def test_a_field_that_was_never_set_is_an_error(form: Any) -> None:
    with pytest.raises(AttributeError):
        form.encode(object.__new__(ProduceResponse), 9)


def test_what_is_read_by_the_thousand_is_nothing_for_the_garbage_collector() -> None:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=1, timestamp=2)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition])
    encoded = codec.encode(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
    read = codec.decode(ListOffsetsRequest, encoded, 5)
    assert gc.is_tracked(read.topics[0]), "it holds a list"
    assert gc.is_tracked(read.topics[0].partitions[0]) is (codec.__file__ or "").endswith(".py")
