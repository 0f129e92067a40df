"""A topic's messages: searched, tailed, downloaded, and one produced."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kbroker.client.client_config import ConsumerConfig, ProducerConfig
from kbroker.client.consumer import Consumer
from kbroker.client.errors import ConfigurationError
from kbroker.client.producer import Producer
from kbroker.client.record_objects import as_object
from kbroker.client.types import TopicDescription, TopicPartition
from kbroker.page.facts import led, reason
from kbroker.page.guard import form_of
from kbroker.page.held import TooMany
from kbroker.page.page import Page, see_other
from kbroker.page.record_query import PARTITIONERS, STARTS, RecordQuery, WrongQuery, read_query
from kbroker.page.record_view import FORMATS, RecordView, csv_lines, spark_snippet, view_of
from kbroker.page.rendering import names_of, path_segment
from kbroker.page.scan import scan
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.record import Record

if TYPE_CHECKING:
    from kbroker.page.app import View

READ_AHEAD = 8 << 20
"""Bytes that one reader has before they are looked at."""
LITTER_S = 1.0
"""How soon after a reader of large records has ended what they left is collected."""
PIECE = 1 << 16
"""Bytes of a download that are sent at a time."""
PROGRESS_S = 0.2
"""How often a search tells how far it is."""
MOST_ROWS = 1_000
"""Rows that one event of a live tail brings; of a flood the newest."""
START_NAMES = {"end": "newest", "start": "oldest", "offset": "offset", "time": "time", "live": "live tail"}


async def messages(page: Page, request: Request) -> Response:
    """Show the search; what it finds comes as a stream."""
    topic = await page.facts.topic(request.path_params["topic"])
    problem, query = "", RecordQuery()
    try:
        query = _query(request)
        query.partitions(len(topic.partitions))
    except ValueError as error:
        problem = str(error)
    return page.show(
        request,
        "messages.html",
        status=400 if problem else 200,
        title=f"{topic.name}: messages",
        tab="messages",
        topic=topic,
        query_problem=problem,
        starts=[(start, START_NAMES[start]) for start in STARTS],
        formats=FORMATS,
        partitioners=PARTITIONERS,
        limit=query.limit,
        is_live=query.start == "live",
        stream=f"/topics/{path_segment(topic.name)}/messages/stream?{urlencode(request.query_params.multi_items())}",
        download=f"/topics/{path_segment(topic.name)}/messages/download",
        snippet=_snippet(page, topic, query),
    )


async def stream(page: Page, request: Request) -> Response:
    """Search, as events: `rows` with HTML and progress, and `end` or `problem`."""
    topic = await page.facts.topic(request.path_params["topic"])
    return StreamingResponse(_events(page, topic, request), media_type="text/event-stream")


async def download(page: Page, request: Request) -> Response:
    """Give all records that match as a file."""
    described = await page.facts.topic(request.path_params["topic"])
    topic = described.name
    page.check_reading()
    kind = request.query_params.get("file", "json")
    make = DOWNLOADS.get(kind)
    if make is None:
        raise WrongQuery(f"{kind!r} is no form of a download: {', '.join(DOWNLOADS)} are")
    query = _query(request).for_download()
    keys, left_out = _places(described, query)
    if left_out:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"a download without {left_out} is not whole: choose others")
    suffix, media_type, encoder = make()
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{path_segment(topic)}.{suffix}"}
    return StreamingResponse(_pieces(page, keys, query, encoder), media_type=media_type, headers=headers)


async def produce(page: Page, request: Request) -> Response:
    """Write one record."""
    topic = (await page.facts.topic(request.path_params["topic"])).name
    form = form_of(request)
    partition = form.get("partition", "").strip()
    if partition and not partition.isdecimal():
        raise WrongQuery(f"{partition!r} is no partition")
    is_hex = form.get("encoding") == "hex"
    async with Producer(page.options.bootstrap, **page.options.for_client(ProducerConfig)) as producer:
        done = await producer.send_and_wait(
            topic,
            None if form.get("tombstone") else _bytes(form.get("value", ""), is_hex=is_hex),
            key=_bytes(form["key"], is_hex=is_hex) if form.get("key") else None,
            partition=int(partition) if partition else None,
            headers=_headers(form.get("headers", "")),
        )
    place = urlencode({"from": "offset", "at": done.offset, "partition": done.partition, "done": "produced"})
    return see_other(f"/topics/{path_segment(topic)}/messages?{place}")


def _query(request: Request) -> RecordQuery:
    return read_query(request.query_params, int(time.time() * 1000))


def _places(topic: TopicDescription, query: RecordQuery) -> tuple[list[TopicPartition], str]:
    """Return the partitions to look in, and in words those that nobody leads."""
    wanted = query.partitions(len(topic.partitions))
    alive = set(led(topic))
    keys = [TopicPartition(topic.name, number) for number in wanted]
    silent = [str(key.partition) for key in keys if key not in alive]
    text = f"partition{'s' * (len(silent) > 1)} {names_of(silent)}, without a leader now" if silent else ""
    return [key for key in keys if key in alive], text


@contextlib.asynccontextmanager
async def _reading(page: Page) -> AsyncIterator[Consumer]:
    """Give a consumer that is in no group; it is closed even when whoever listened has gone, which cancels all here."""
    page.check_reading()
    arguments = page.options.for_client(ConsumerConfig, prefetch_bytes=READ_AHEAD, fetch_max_bytes=READ_AHEAD)
    for name in ("group.id", "group_id", "group.instance.id", "group_instance_id"):
        arguments.pop(name, None)
    async with page.reading:
        consumer = Consumer(page.options.bootstrap, **arguments)
        try:
            yield consumer
        finally:
            closing = asyncio.ensure_future(consumer.close())
            page.closing.add(closing)
            closing.add_done_callback(page.closing.discard)
            if page.held.is_littered():
                asyncio.get_running_loop().call_later(LITTER_S, gc.collect)
            await asyncio.shield(closing)


async def _events(page: Page, topic: TopicDescription, request: Request) -> AsyncIterator[str]:
    """Search until the end, or until nobody listens."""
    try:
        query = _query(request)
        if query.start == "live":
            query = replace(query, limit=None)
        keys, left_out = _places(topic, query)
        if not keys:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, left_out)
        form = request.query_params.get("show", "auto")
        template = page.templates.get_template("rows.html")
        found, told_at = 0, 0.0

        def shown(record: Record) -> RecordView:
            return view_of(record, form)

        async with (
            _reading(page) as consumer,
            contextlib.aclosing(scan(consumer, keys, query, shown, page.held)) as steps,
        ):
            async for step in steps:
                found += len(step.records)
                now = time.monotonic()
                if not step.records and now < told_at + PROGRESS_S:
                    continue
                told_at = now
                views = step.records[-MOST_ROWS:]
                if page.schemas is not None:
                    views = await page.schemas.read(views)
                html = await asyncio.to_thread(template.render, rows=views, topic=topic.name) if views else ""
                progress = {"found": found, "scanned": step.scanned, "total": step.total, "without": left_out}
                yield _event("rows", {"html": html, **progress})
        yield _event("end", {"found": found, "limit": query.limit})
    except (KafkaError, OSError, ValueError, ConfigurationError, TooMany) as error:
        yield _event("problem", {"text": reason(error)})


def _event(name: str, content: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(content)}\n\n"


Encoder = Callable[[list[Record] | None], bytes]
"""Records to bytes; None is the end."""


async def _pieces(
    page: Page, keys: list[TopicPartition], query: RecordQuery, encode: Encoder
) -> AsyncIterator[memoryview]:
    async with (
        _reading(page) as consumer,
        contextlib.aclosing(scan(consumer, keys, query, _whole, page.held)) as steps,
    ):
        async for step in steps:
            for piece in in_pieces(await asyncio.to_thread(encode, step.records)):
                yield piece
    for piece in in_pieces(await asyncio.to_thread(encode, None)):
        yield piece


def in_pieces(encoded: bytes) -> Iterator[memoryview]:
    """Give what is to be sent in pieces: what a connection was given it holds once more."""
    whole = memoryview(encoded)
    for start in range(0, len(whole), PIECE):
        yield whole[start : start + PIECE]


def _whole(record: Record) -> Record:
    return record


def _as_csv() -> tuple[str, str, Encoder]:
    is_first = True

    def encode(records: list[Record] | None) -> bytes:
        nonlocal is_first
        heading, is_first = is_first, False
        return csv_lines(records or (), heading=heading)

    return "csv", "text/csv; charset=utf-8", encode


def _as_json() -> tuple[str, str, Encoder]:
    def encode(records: list[Record] | None) -> bytes:
        return b"".join(json.dumps(as_object(record), ensure_ascii=False).encode() + b"\n" for record in records or ())

    return "ndjson", "application/x-ndjson", encode


def _as_parquet() -> tuple[str, str, Encoder]:
    try:
        from kbroker.page.parquet import ParquetWriter
    except ModuleNotFoundError:
        raise ConfigurationError("pyarrow is not installed: pip install 'kbroker[arrow]'") from None
    writer = ParquetWriter()
    return "parquet", "application/vnd.apache.parquet", lambda r: writer.close() if r is None else writer.write(r)


DOWNLOADS: dict[str, Callable[[], tuple[str, str, Encoder]]] = {
    "csv": _as_csv,
    "json": _as_json,
    "parquet": _as_parquet,
}


def _snippet(page: Page, topic: TopicDescription, query: RecordQuery) -> str:
    """Return the place the search begins at, as Spark reads it."""
    numbers = [partition.partition for partition in topic.partitions]
    chosen = query.partitions(len(numbers))
    places: list[tuple[int, int]] | None = None
    if query.start == "offset":
        places = [(number, query.at if number in chosen else -2) for number in numbers]
    elif query.start in ("end", "live"):
        places = [(number, -1) for number in numbers]
    return spark_snippet(
        page.options.bootstrap,
        topic.name,
        places,
        query.at if query.start == "time" else None,
        is_stream=query.start in ("end", "live"),
        is_secured="security.protocol" in page.options.settings,
    )


def _bytes(text: str, *, is_hex: bool) -> bytes:
    if not is_hex:
        return text.replace("\r\n", "\n").encode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise WrongQuery("keys and values in hexadecimal are pairs of 0-9 and a-f") from None


def _headers(text: str) -> list[tuple[str, bytes]]:
    """Read `name: value` lines."""
    found = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon:
            raise WrongQuery(f"a header is written as name: value, not {line!r}")
        found.append((name.strip(), value.strip().encode()))
    return found


ROUTES: tuple[tuple[str, View], ...] = (
    ("/topics/{topic}/messages", messages),
    ("/topics/{topic}/messages/stream", stream),
    ("/topics/{topic}/messages/download", download),
)
FORMS: tuple[tuple[str, View], ...] = (("/topics/{topic}/produce", produce),)
