"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, for topics, brokers and this process's loggers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Generator, Iterable, Mapping, Sequence
from operator import is_not
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from kbroker.cluster.topic_names import name_problem
from kbroker.config import description as config_description
from kbroker.config.broker_config import BROKER_KEYS
from kbroker.config.description import LOG_LEVELS, ROOT_LOGGER, ConfigEntry
from kbroker.config.dynamic_config import BROKERS, DEFAULT_ENTITY, TOPICS, DynamicConfig
from kbroker.controller.broker_store import ConfigChange
from kbroker.controller.znode_operations import ControllerMoved, ZooKeeperError
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import Asked, Steps
from kbroker.handlers.registry import handles
from kbroker.protocol.codec import ElementWriter, encode_elements
from kbroker.protocol.config_def import ConfigKey, ConfigType
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kbroker.protocol.primitives import LONGEST_STRING
from kbroker.replica.turns import Turn, finished, in_turns
from kbroker.security.acls import AclOperation, AclResource
from kbroker.security.limited_lines import LimitedLines
from kbroker.segment.log_config import TOPIC_KEYS

log = logging.getLogger(__name__)
_lines = LimitedLines(log, "configurations told as they are known here")

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
MOST_CHANGES = 2_000
MOST_LOOKED_UP = 100
"""Topics: of more it is told what is known here, and"""
LOOK_UP_S = 2.0
"""the same where ZooKeeper takes longer."""
Result = DescribeConfigsResponse.DescribeConfigsResult

_descriptions: WeakKeyDictionary[DynamicConfig, tuple[tuple[object, ...], dict[tuple[int, bool, bool], bytes]]] = (
    WeakKeyDictionary()
)
"""What a broker's description was made of, and the forms in which it was asked for."""


# -- DescribeConfigs ----------------------------------------------------------------------------------------------


def _may(asked: Asked, resource: Any, operation: AclOperation) -> bool:
    if resource.resource_type == TOPIC:
        return asked.may(operation, AclResource.TOPIC, resource.resource_name)
    return resource.resource_type not in (BROKER, BROKER_LOGGER) or asked.may(operation, AclResource.CLUSTER)


def _take_out(asked: Asked, refused: Sequence[Any]) -> None:
    for is_topic, code in (
        (True, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (False, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ):
        resources = [each for each in refused if (each.resource_type == TOPIC) is is_topic]
        if resources:
            asked.take_out("resources", resources, code)


def _may_describe(asked: Asked) -> Steps:
    refused = []
    for resource in asked.request.resources:
        if not _may(asked, resource, AclOperation.DESCRIBE_CONFIGS):
            refused.append(resource)
        yield
    _take_out(asked, refused)


@handles(
    DescribeConfigsRequest,
    _may_describe,
    ends_with_connection=True,
    asks_for_much=lambda request: len(request.resources) > MOST_LOOKED_UP,
)
def describe_configs(
    services: Services, ctx: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse]:
    """Show the effective configuration of each resource; one that is named twice is shown once.

    Of a few topics it is looked up, as in Kafka: so what was changed is shown, whichever brokers are asked.
    """
    topics = dict.fromkeys(each.resource_name for each in request.resources if each.resource_type == TOPIC)
    if not topics or len(topics) > MOST_LOOKED_UP:
        return in_turns(_describe_all(_Question(services, ctx, request, {})))
    return _look_up_and_describe(services, ctx, request, [each for each in topics if each in services.metadata.topics])


class _Question(NamedTuple):
    """A request, and what was looked up for it."""

    services: Services
    ctx: RequestContext
    request: DescribeConfigsRequest
    stored: Mapping[str, dict[str, str]]
    """Overrides of topics; those of others are told as they are known here."""

    def overrides_of(self, topic: str) -> dict[str, str]:
        """Of a topic."""
        return self.stored[topic] if topic in self.stored else self.services.configs.topic_overrides.get(topic, {})


async def _look_up_and_describe(
    services: Services, ctx: RequestContext, request: DescribeConfigsRequest, topics: Sequence[str]
) -> DescribeConfigsResponse:
    stored: Mapping[str, dict[str, str]] = {}
    try:
        async with asyncio.timeout(LOOK_UP_S):
            stored = await services.zookeeper.read_configs(TOPICS, topics)
    except (ZooKeeperError, TimeoutError) as error:
        reason = error or f"ZooKeeper did not answer in {LOOK_UP_S:g} s"
        level = _lines.level("topics", logging.WARNING)
        log.log(level, "configurations of topics are told as they are known here: %s", reason)
    return await finished(in_turns(_describe_all(_Question(services, ctx, request, stored))))


def _describe_all(question: _Question) -> Generator[None, None, DescribeConfigsResponse]:
    services, ctx, request, _ = question
    asked: dict[tuple[int, str], set[str] | None] = {}
    for resource in request.resources:
        resource_key = resource.resource_type, resource.resource_name
        names = asked.setdefault(resource_key, set())
        if names is not None and resource.configuration_keys:
            names.update(resource.configuration_keys)
        else:  # null asks for all; kafkajs asks for all by an empty list
            asked[resource_key] = None
        yield
    results = ElementWriter(DescribeConfigsResponse, ctx.api_version)
    for (kind, name), names in asked.items():
        if kind == BROKER and names is None and name == str(services.broker_id):
            results.append_encoded(_broker_description(question))
        else:
            results.append_encoded(_description(question, kind, name, names))
        yield
    return DescribeConfigsResponse(throttle_time_ms=0, results=results.array())


def _broker_description(question: _Question) -> bytes:
    """Return this broker's description, encoded: of hundreds of keys, and asked for by everyone who looks after it."""
    services, ctx, request, _ = question
    configs = services.configs
    made_of, known = _descriptions.get(configs, ((), {}))
    if len(made_of) != len(configs.of_broker) or any(map(is_not, made_of, configs.of_broker)):
        known = {}
        _descriptions[configs] = configs.of_broker, known
    form = ctx.api_version, request.include_synonyms, request.include_documentation
    if form not in known:
        known[form] = _description(question, BROKER, str(services.broker_id), None)
    return known[form]


def _description(question: _Question, kind: int, name: str, wanted: set[str] | None) -> bytes:
    """Return a resource's description, encoded; what is stored and cannot be told keeps no other from being told."""
    try:
        result = _describe(question, kind, name, wanted)
        return encode_elements([result], DescribeConfigsResponse, question.ctx.api_version)
    except ValueError as error:
        refused = KafkaError(ErrorCode.INVALID_CONFIG, f"What is stored cannot be told: {error}")
        log.warning("configuration of %s: %s", name or "all brokers", refused)
        result = Result(
            error_code=refused.code,
            error_message=refused.message,
            resource_type=kind,
            resource_name=name,
            configs=[],
        )
        return encode_elements([result], DescribeConfigsResponse, question.ctx.api_version)


def _describe(question: _Question, kind: int, name: str, wanted: set[str] | None) -> Result:
    code, message, entries = ErrorCode.NONE, "", []
    try:
        entries = _entries(question, kind, name)
    except KafkaError as error:
        code, message = error.code, error.message
    return Result(
        error_code=code,
        error_message=message,
        resource_type=kind,
        resource_name=name,
        configs=[_shown(question.request, entry) for entry in entries if wanted is None or entry.name in wanted],
    )


def _entries(question: _Question, kind: int, name: str) -> list[ConfigEntry]:
    services = question.services
    if kind == TOPIC:
        problem = name_problem(name)
        if problem:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in services.metadata.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return config_description.describe_topic(services.configs, question.overrides_of(name))
    if kind == BROKER:
        if not name:
            return config_description.describe_broker_defaults(services.configs)
        _require_this_broker(services, name, " or empty string")
        return config_description.describe_broker(services.configs)
    if kind == BROKER_LOGGER:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        _require_this_broker(services, name)
        return config_description.describe_loggers()
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _require_this_broker(services: Services, name: str, otherwise: str = "") -> None:
    try:
        int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if name != str(services.broker_id):  # 01 and +1 are numbers too: one broker has one name
        text = f"Unexpected broker id, expected {services.broker_id}{otherwise}, but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _shown(request: DescribeConfigsRequest, entry: ConfigEntry) -> Any:
    synonyms = entry.synonyms if request.include_synonyms else []
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in synonyms
        ],
        config_type=entry.type_code,
        documentation=entry.documentation if request.include_documentation else None,
    )


# -- changing -----------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """One key of one resource, and what is to become of it."""

    name: str
    operation: int
    value: str | None


def _may_alter(asked: Asked) -> Steps:
    """What makes no sense is refused for that first."""
    refused, times = [], _times(asked.request.resources)
    for resource in asked.request.resources:
        if _makes_sense(asked, resource, times) and not _may(asked, resource, AclOperation.ALTER_CONFIGS):
            refused.append(resource)
        yield
    _take_out(asked, refused)


def _makes_sense(asked: Asked, resource: Any, times: Mapping[tuple[int, str], int]) -> bool:
    kind, name = resource.resource_type, resource.resource_name
    try:
        if kind == BROKER and name:
            _require_this_broker(asked.services, name)
        _check_changes(_changes(resource))
    except KafkaError:
        return False
    return times[kind, name] == 1


@handles(AlterConfigsRequest, _may_alter)
async def alter_configs(services: Services, ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace all overrides of each resource."""
    responses = []
    times, turn = _times(request.resources), Turn()
    for resource in request.resources:
        error = await _alter(services, resource, _changes(resource), times, request.validate_only, keep=False)
        responses.append(_result(AlterConfigsResponse.AlterConfigsResourceResponse, resource, error))
        await turn.end_if_over()
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses)


@handles(IncrementalAlterConfigsRequest, _may_alter)
async def incremental_alter_configs(
    services: Services, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Set, delete, append to and subtract from single overrides of each resource."""
    responses = []
    times, turn = _times(request.resources), Turn()
    for resource in request.resources:
        error = await _alter(services, resource, _changes(resource), times, request.validate_only, keep=True)
        responses.append(_result(IncrementalAlterConfigsResponse.AlterConfigsResourceResponse, resource, error))
        await turn.end_if_over()
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _changes(resource: Any) -> list[Change]:
    """What is to become of each key; AlterConfigs can only set."""
    return [
        Change(config.name, getattr(config, "config_operation", SET), config.value)
        for config in resource.configs[: MOST_CHANGES + 1]
    ]


def _times(resources: Iterable[Any]) -> Counter[tuple[int, str]]:
    return Counter((resource.resource_type, resource.resource_name) for resource in resources)


def _result(result: Any, resource: Any, error: KafkaError | None) -> Any:
    return result(
        error_code=error.code if error else ErrorCode.NONE,
        error_message=(error.message or None) if error else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


async def _alter(
    services: Services,
    resource: Any,
    changes: Sequence[Change],
    times: Mapping[tuple[int, str], int],
    validate_only: bool,
    keep: bool,
) -> KafkaError | None:
    """Change one resource; `keep` what is not named. Returns the error, if any."""
    kind, name = resource.resource_type, resource.resource_name
    try:
        if times[kind, name] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Each resource must appear at most once: {name}")
        _check_changes(changes)
        if kind == TOPIC:
            await _alter_topic(services, name, changes, validate_only, keep)
        elif kind == BROKER:
            await _alter_broker(services, name, changes, validate_only, keep)
        elif kind == BROKER_LOGGER and keep:
            _alter_loggers(services, name, changes, validate_only)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    except KafkaError as error:
        return error
    except ControllerMoved as error:
        return KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, str(error))
    except ZooKeeperError as error:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error}")
    return None


def _check_changes(changes: Sequence[Change]) -> None:
    if len(changes) > MOST_CHANGES:
        text = f"more than {MOST_CHANGES} changes of one resource: none has as many keys"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    twice = sorted(name for name, times in Counter(change.name for change in changes).items() if times > 1)
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {','.join(twice)}")
    without = [change.name for change in changes if change.value is None and change.operation != DELETE]
    if without:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(without)}")


def changed(
    present: Mapping[str, str], changes: Sequence[Change], keys: Mapping[str, ConfigKey], keep: bool
) -> dict[str, str]:
    """Return the overrides after the changes (pure); raises KafkaError INVALID_CONFIG or INVALID_REQUEST."""
    after = dict(present) if keep else {}
    for change in changes:
        if change.operation == DELETE:
            after.pop(change.name, None)
        elif change.operation == SET:
            after[change.name] = (change.value or "").strip()
        elif change.operation in (APPEND, SUBTRACT):
            key = keys.get(change.name)
            verb = "append" if change.operation == APPEND else "subtract"
            if key is None or key.type is not ConfigType.LIST:
                text = f"Config value {verb} is not allowed for config key: {change.name}"
                raise KafkaError(ErrorCode.INVALID_CONFIG, text)
            values = key.parse(after[change.name]) if change.name in after else key.default
            given = dict.fromkeys(part.strip() for part in (change.value or "").split(","))
            if change.operation == APPEND:
                there = frozenset(values)
                values = [*values, *(value for value in given if value not in there)]
            else:
                values = [value for value in values if value not in given]
            after[change.name] = ",".join(values)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation} for {change.name}")
        if len(after.get(change.name, "").encode()) > LONGEST_STRING:
            text = f"The value of {change.name} would be longer than {LONGEST_STRING} bytes: it could not be told"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    return after


async def _alter_topic(
    services: Services, name: str, changes: Sequence[Change], validate_only: bool, keep: bool
) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    if name not in services.metadata.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    async def change(present: dict[str, str]) -> dict[str, str]:
        after = changed(present, changes, TOPIC_KEYS, keep)
        services.configs.check_topic_overrides(after)
        return after

    await _change(services, TOPICS, name, change, validate_only)


async def _alter_broker(
    services: Services, name: str, changes: Sequence[Change], validate_only: bool, keep: bool
) -> None:
    if name:
        _require_this_broker(services, name)
    configs = services.configs

    async def change(stored: dict[str, str]) -> dict[str, str]:
        present, unreadable = await configs.decoded(stored) if name else (stored, {})
        after = changed(present, changes, BROKER_KEYS, keep)
        named = {change.name for change in changes}
        kept = {each: stored[each] for each in unreadable if each not in named}
        try:
            configs.check_broker_overrides(after, per_broker=bool(name), unreadable=kept)
            if not name:
                return after
            await configs.prepare(after, unreadable=kept)
            if kept:
                log.warning(
                    "broker %s: passwords that cannot be read stay as they are stored: %s", name, ", ".join(kept)
                )
            return {**await configs.encoded(after, present, stored), **kept}
        except KafkaError as error:
            # Kafka has another code for brokers than for topics.
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error

    async with configs.altering():
        await _change(services, BROKERS, name or DEFAULT_ENTITY, change, validate_only)


async def _change(services: Services, kind: str, entity: str, change: ConfigChange, validate_only: bool) -> None:
    """Write, tell every broker, and apply here at once: whoever asks this broker next sees the change."""
    if validate_only:
        await change(await services.zookeeper.read_config(kind, entity))
        return
    await services.zookeeper.change_config(kind, entity, change)
    await services.configs.refresh(kind, entity)


def _alter_loggers(services: Services, name: str, changes: Sequence[Change], validate_only: bool) -> None:
    _require_this_broker(services, name)
    known = {entry.name for entry in config_description.describe_loggers()}
    for change in changes:
        if change.operation not in (SET, DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Only SET and DELETE are allowed for loggers")
        if change.name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        if change.operation == SET and change.value not in LOG_LEVELS:
            levels = ", ".join(LOG_LEVELS)
            text = f"Cannot set the log level of {change.name} to {change.value}: it is not one of {levels}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        if change.operation == DELETE and change.name == ROOT_LOGGER:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    if not validate_only:
        for change in changes:
            level = change.value if change.operation == SET else None
            config_description.set_logger_level(change.name, level)
        if services.rules is not None:
            services.rules.authorizer.forget()  # what was not worth a line in its log may be now
