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


def decode_records(state: PartitionState, chunk: Chunk, records: list[Record], limit: int, check_crcs: bool) -> None:
    """Decode batches until there are `limit` records; a batch's rest is decoded again in the next call."""
    topic, partition = chunk.partition
    data = chunk.records
    while len(records) < limit and len(data) - chunk.position >= HEADER_SIZE:
        offset = state.offset
        try:
            header = read_header(data, chunk.position)
            if header.size > len(data) - chunk.position:
                break
            hidden = header.is_control if chunk.aborted is None else chunk.aborted.hides(header, data, chunk.position)
            if not hidden and header.next_offset > offset:
                found = decode_batch(data, chunk.position, header.size, check_crcs, offset, topic, partition)
                room = limit - len(records)
                if len(found) > room:
                    records += found[:room]
                    state.offset = found[room].offset
                    return
                records += found
        except KafkaError as error:
            raise _named(state, chunk, error) from error
        chunk.position += header.size
        state.offset = max(header.next_offset, offset)
    else:
        if len(records) >= limit and len(data) - chunk.position >= HEADER_SIZE:
            return
    if state.chunks and state.chunks[0] is chunk:
        state.chunks.popleft()


def decode_columns(state: PartitionState, chunk: Chunk, decoder: ColumnDecoder, check_crcs: bool) -> None:
    """Decode this chunk, and what is there of its partition behind it, until a limit is met."""
    while True:
        try:
            chunk.position = decoder.append(
                chunk.records, chunk.partition.partition, state.offset, None, chunk.position, chunk.aborted, check_crcs
            )
        except KafkaError as error:
            state.offset = max(state.offset, decoder.next_offset)
            if decoder.rows:
                return  # what is before the bad batch is delivered first
            raise _named(state, chunk, error) from error
        state.offset = max(state.offset, decoder.next_offset)
        if decoder.full:
            return
        state.chunks.popleft()
        if not state.chunks:
            return
        chunk = state.chunks[0]


def _named(state: PartitionState, chunk: Chunk, error: KafkaError) -> KafkaError:
    """Say where a batch is that cannot be read, and how to go on."""
    behind = ""
    try:
        header = read_header(chunk.records, chunk.position)
        behind = f"; its batch ends before offset {header.next_offset}, seek there to skip it"
    except KafkaError:
        pass
    text = f"offset {state.offset} cannot be read: {error.message}{behind}"
    topic, partition = chunk.partition
    return error_for(error.code, text, topic=topic, partition=partition)
