"""SKELETON: batches <-> Arrow buffers.

Reading:
    decoder = ColumnDecoder(row_limit=100_000, byte_limit=64 << 20, headers=False, pool=BufferPool())
    position = decoder.append(records, partition, from_offset, to_offset=None, position=0, aborted=None, check_crc=True)
        # many batches in one call; returns where it stopped (== len(records) or a cut-off tail, or the batch in which a
        # limit was met); decoder.next_offset = offset to go on from; decoder.full
    columns = decoder.finish()   # Columns(rows, buffers), decoder is empty again
Columns: rows; key, value: BinaryColumn(offsets int32 buffer, data buffer, validity|None, null_count);
    offset(int64) timestamp(int64 us) timestamp_type(int32) partition(int32): buffers;
    headers: HeadersColumn(offsets int32, keys BinaryColumn, values BinaryColumn, rows) | None
    The buffers are bytearrays of at least the needed length; pool takes one back when nobody looks into it any more.

Writing:
    encoder = ColumnEncoder(partitions=6, batch_size=1 << 20, compression=…, level=None, producer_id=-1, producer_epoch=-1, sequences=[0]*6)
    encoder.append(rows, key, value, timestamp_ms: int64 buffer | int (same for all), headers=None, partition: int32 buffer | None)
    encoder.take() / finish() -> list[EncodedBatch(partition, count, batch: bytearray, first_row, last_row)]
"""
