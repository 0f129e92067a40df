"""Every declaration held against Kafka's own, field by field; and what a declared class can do."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.protocol import apis, primitives, schema
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.groups import HeartbeatRequest
from kbroker.protocol.messages.security import SaslAuthenticateRequest
from kbroker.protocol.schema import (
    ALWAYS,
    NEVER,
    REQUIRED,
    Field,
    Message,
    SchemaType,
    VersionRange,
    parse_versions,
    schema_of,
)
from tests.protocol import definitions

DEFINITIONS = Path(__file__).parents[3] / "shared" / "kafka-messages"

OLDEST_VERSION = {
    0: 0, 1: 4, 2: 1, 3: 0, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2, 27: 1, 29: 1, 30: 1, 31: 1, 32: 1, 34: 1, 35: 1,
    38: 1, 39: 1, 40: 1, 41: 1,
}  # fmt: skip
"""Where it is not 0: what Kafka 4 still serves (KIP-896)."""

ADDED_AFTER_3_9 = {
    ("ConsumerGroupHeartbeatRequest", "subscribed_topic_regex"),
    ("ConsumerGroupDescribeResponse", "member_type"),
    ("ApiVersionsRequest", "include_software"),
    ("ApiVersionsResponse", "software"),
    ("DescribeGroupsRequest", "include_history"),
    ("DescribeGroupsResponse", "last_rebalance"),
    ("DescribeGroupsResponse", "history"),
    ("DescribeLogDirsRequest", "scrub_id"),
    ("DescribeLogDirsResponse", "scrubs"),
    ("EndTxnResponse", "producer_id"),
    ("EndTxnResponse", "producer_epoch"),
    ("WriteTxnMarkersRequest", "transaction_version"),
    ("TransactionLogValue", "previous_producer_id"),
    ("TransactionLogValue", "next_producer_id"),
    ("TransactionLogValue", "client_transaction_version"),
}
"""Version 1 of the first two APIs is Kafka 4's; today's clients use them only with it. Of ApiVersions, DescribeGroups
and DescribeLogDirs it is our own tags. What belongs to transactions is Kafka 4's, for an epoch for each of them
(KIP-890, KIP-1228).
"""

NEWEST_AFTER_3_9 = {0: 12, 26: 5, 27: 2, 28: 5, 68: 1, 69: 1}
"""Key -> the version that we serve beyond 3.9."""

KINDS = {
    "bool": primitives.BOOL, "int8": primitives.INT8, "int16": primitives.INT16, "int32": primitives.INT32,
    "int64": primitives.INT64, "float64": primitives.FLOAT64, "string": primitives.STRING,
    "bytes": primitives.BYTES, "records": primitives.RECORDS, "uuid": primitives.UUID,
}  # fmt: skip

ZEROS = {
    primitives.BOOL: False, primitives.FLOAT64: 0.0, primitives.STRING: "", primitives.BYTES: b"",
    primitives.RECORDS: None, primitives.UUID: bytes(16), primitives.ERROR: ErrorCode.NONE,
}  # fmt: skip

MESSAGES = [each for each in definitions.MESSAGES if each.__module__.startswith("kbroker.protocol.")]

assert len(MESSAGES) > 100, "nothing would be compared"


def snake_case(name: str) -> str:
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def overlap(one: VersionRange, other: VersionRange) -> VersionRange:
    found = VersionRange(max(one.first, other.first), min(one.last, other.last))
    return found if found.first <= found.last else NEVER


def read_definition(name: str) -> dict[str, Any]:
    if not DEFINITIONS.is_dir():
        pytest.skip(f"Kafka's message definitions are not at {DEFINITIONS}")
    definition: dict[str, Any] = json.loads((DEFINITIONS / f"{name}.json").read_text())
    return definition


def pairs(
    ours: type[schema.Struct], theirs: list[dict[str, Any]], common: dict[str, Any], within: VersionRange
) -> Iterator[tuple[str, Field, dict[str, Any], VersionRange]]:
    """Walk both definitions at once: each field of ours beside theirs, with the versions its struct is in."""
    name = ours.__qualname__
    fields = [item for item in schema_of(ours).fields if (name.partition(".")[0], item.name) not in ADDED_AFTER_3_9]
    there = [item for item in theirs if overlap(parse_versions(item["versions"]), within) != NEVER]
    assert [item.name for item in fields] == [snake_case(item["name"]) for item in there], name
    for field, definition in zip(fields, there, strict=True):
        yield name, field, definition, within
        if field.struct is not None:
            shared = common.get(definition["type"].removeprefix("[]"))
            if shared is not None:
                yield from pairs(field.struct, shared["fields"], common, shared["within"])
            else:
                versions = overlap(parse_versions(definition["versions"]), within)
                yield from pairs(field.struct, definition["fields"], common, versions)


def shared_structs(definition: dict[str, Any], versions: VersionRange) -> dict[str, Any]:
    """Structs that stand in several places: their fields, and the versions from the first to the last of their uses."""
    shared = {item["name"]: {"fields": item["fields"], "within": NEVER} for item in definition.get("commonStructs", [])}

    def look_at(fields: list[dict[str, Any]], within: VersionRange) -> None:
        for item in fields:
            here = overlap(parse_versions(item["versions"]), within)
            found = shared.get(item["type"].removeprefix("[]"))
            if found is not None and here != NEVER:
                before = found["within"]
                joined = VersionRange(min(before.first, here.first), max(before.last, here.last))
                found["within"] = here if before == NEVER else joined
            look_at(item.get("fields", found["fields"] if found else []), here)

    look_at(definition["fields"], versions)
    return shared


def expected_default(definition: dict[str, Any], field: Field) -> Any:
    if "default" not in definition:
        if field.array:
            return ()
        return field.default if field.struct else ZEROS.get(field.kind, 0)
    text = str(definition["default"])
    if text in ("null", "None"):
        return None
    if field.kind == primitives.STRING:
        return text
    if field.kind == primitives.BOOL:
        return text.lower() == "true"
    return float(text) if field.kind == primitives.FLOAT64 else int(text, 0)


def check_field(name: str, field: Field, definition: dict[str, Any], within: VersionRange) -> None:
    place = f"{name}.{field.name}"
    versions = overlap(parse_versions(definition["versions"]), within)
    assert overlap(field.versions, within) == versions, place
    assert field.array == definition["type"].startswith("[]"), place
    element = definition["type"].removeprefix("[]")
    if field.kind == primitives.ERROR:
        assert element == "int16", place
    else:
        assert field.kind == KINDS.get(element, primitives.STRUCT), place
    if field.kind == primitives.STRUCT:
        assert field.struct_name == element, place
    nullable = parse_versions(definition.get("nullableVersions", "none"))
    assert overlap(field.nullable, versions) == overlap(nullable, versions), place
    assert field.tag == definition.get("tag"), place
    if versions != within:
        assert field.ignorable == (str(definition.get("ignorable", False)).lower() == "true"), place
    check_default(place, field, definition, needed=versions != within or field.tag is not None)


def check_default(place: str, field: Field, definition: dict[str, Any], needed: bool) -> None:
    """A default of Kafka's is ours; one that only the constructor sees may be missing, or None where null is legal."""
    expected = expected_default(definition, field)
    if needed or "default" in definition:
        assert field.default == expected, place
    else:
        assert field.default in (REQUIRED, expected) or (field.default is None and field.nullable != NEVER), place


@pytest.mark.parametrize("message_type", MESSAGES, ids=lambda message_type: message_type.__name__)
def test_a_message_is_declared_as_kafka_defines_it(message_type: type[Message]) -> None:
    definition = read_definition(message_type.__name__)
    ours = schema_of(message_type)
    versions = parse_versions(definition["validVersions"])
    if ours.role != "data":
        assert ours.api_key == definition["apiKey"]
        newest = NEWEST_AFTER_3_9.get(ours.api_key, versions.last)
        versions = VersionRange(OLDEST_VERSION.get(ours.api_key, 0), newest)
    assert ours.role == definition["type"]
    assert ours.versions == versions
    assert ours.flexible == parse_versions(definition["flexibleVersions"])
    common = shared_structs(definition, versions)
    for name, field, theirs, within in pairs(message_type, definition["fields"], common, versions):
        check_field(name, field, theirs, within)


def test_every_api_of_a_zookeeper_mode_broker_is_there() -> None:
    assert set(apis.API_BY_KEY) == {*range(52), 56, 57, 58, 60, 61, 65, 66, 67, 68, 69}
    for api in apis.API_BY_KEY.values():
        assert schema_of(api.response).answers is api.request
        assert apis.api_of(api.request) is api


def test_a_message_is_built_by_keywords_and_compared_by_value() -> None:
    one = HeartbeatRequest(group_id="orders", generation_id=3, member_id="m1")
    assert one == HeartbeatRequest(group_id="orders", generation_id=3, member_id="m1", group_instance_id=None)
    assert one != HeartbeatRequest(group_id="orders", generation_id=4, member_id="m1")
    assert repr(one).startswith("HeartbeatRequest(group_id='orders', generation_id=3,")


def test_what_is_secret_is_not_shown() -> None:
    token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonderland")
    assert repr(token) == "SaslAuthenticateRequest(auth_bytes=…)"
    set_to = IncrementalAlterConfigsRequest.AlterableConfig(name="a.password", config_operation=0, value="wonderland")
    assert "wonderland" not in repr(set_to)
    kinds = [kind for api in apis.API_BY_KEY.values() for kind in (api.request, api.response)]
    inside = (kind for each in kinds for kind in (each, *vars(each).values()))
    messages: list[Any] = [kind for kind in inside if isinstance(kind, SchemaType)]
    secret = {field.name for each in messages for field in schema_of(each).fields if field.is_secret}
    assert secret == {"auth_bytes", "hmac", "salt", "salted_password", "value"}


def test_a_missing_or_unknown_argument_is_named() -> None:
    with pytest.raises(TypeError, match="member_id"):
        HeartbeatRequest(group_id="orders", generation_id=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        FetchRequest.ReplicaState(colour="red")  # type: ignore[call-arg]


def test_messages_have_slots_only() -> None:
    with pytest.raises(AttributeError):
        FetchRequest.ReplicaState().anything = 1  # type: ignore[attr-defined]


def test_version_ranges_are_read_as_kafka_writes_them() -> None:
    assert parse_versions("3-5") == VersionRange(3, 5)
    assert 7 in parse_versions("3+")
    assert parse_versions("0+") == ALWAYS
    assert 0 not in parse_versions("none")
    assert str(parse_versions("2")) == "2-2"
