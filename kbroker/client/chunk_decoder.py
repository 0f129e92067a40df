"""From fetched bytes to records or columns: what lies at a partition's position, up to a limit (no I/O).

What comes before a batch that cannot be read is delivered first; then the error names the offset and how to go on.
"""

from __future__ import annotations

from kbroker.client.errors import error_for
from kbroker.client.partition_state import Chunk, PartitionState
from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import HEADER_SIZE, read_header
from kbroker.protocol.records.columns import ColumnDecoder
from kbroker.protocol.records.record import Record, decode_batch


def decode_records(state: PartitionState, limit: int, check_crcs: bool) -> list[Record]:
    """Decode batches of the first chunk until there are `limit` records, or more: a batch is decoded once, whole."""
    chunk = state.chunks[0]
    topic, partition = state.key
    data = chunk.records
    records: list[Record] = []
    while len(data) - chunk.position >= HEADER_SIZE:
        if len(records) >= limit:
            return records
        offset = state.offset
        try:
            header = read_header(data, chunk.position)
            if header.size > len(data) - chunk.position:
                break
            hidden = header.is_control if chunk.aborted is None else chunk.aborted.hides(header, data, chunk.position)
            if not hidden and header.next_offset > offset:
                records += decode_batch(data, chunk.position, header.size, check_crcs, offset, topic, partition)
        except KafkaError as error:
            if records or state.distrust(chunk.follower_in):
                return records  # what is before the bad batch is delivered first
            raise _named(state, chunk, error) from error
        chunk.position += header.size
        state.offset = max(header.next_offset, offset)
    state.chunk_done()
    return records


def decode_columns(state: PartitionState, decoder: ColumnDecoder, check_crcs: bool) -> None:
    """Decode what is there of a partition, until a limit is met."""
    while state.chunks:
        chunk = state.chunks[0]
        try:
            chunk.position = decoder.append(
                chunk.records, state.key.partition, state.offset, None, chunk.position, chunk.aborted, check_crcs
            )
        except KafkaError as error:
            state.offset = max(state.offset, decoder.next_offset)
            if decoder.rows or state.distrust(chunk.follower_in):
                return  # what is before the bad batch is delivered first
            raise _named(state, chunk, error) from error
        state.offset = max(state.offset, decoder.next_offset)
        if decoder.full:
            return
        state.chunk_done()


def _named(state: PartitionState, chunk: Chunk, error: KafkaError) -> KafkaError:
    """Say where a batch is that cannot be read, and how to go on."""
    behind = ""
    try:
        header = read_header(chunk.records, chunk.position)
        behind = f"; its batch ends before offset {header.next_offset}, seek there to skip it"
    except KafkaError:
        pass
    text = f"offset {state.offset} cannot be read: {error.message}{behind}"
    topic, partition = state.key
    return error_for(error.code, text, topic=topic, partition=partition)
