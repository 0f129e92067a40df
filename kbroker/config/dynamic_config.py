"""Configuration that changes while the broker runs: overrides in ZooKeeper over server.properties over defaults.

    broker key    /config/brokers/<id>  >  /config/brokers/<default>  >  server.properties  >  default
    topic key     /config/topics/<topic>  >  the broker key of the same meaning, by the line above  >  default

Whoever changes an override writes the entity's znode and then a notification below /config/changes; every broker
reads the notification and then the entity anew. A value that is no longer valid is left out with a warning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kbroker.config.broker_config import (
    BROKER_KEYS,
    BrokerConfig,
    resolve_broker_config,
)
from kbroker.config.checks import check_listeners, refuse_unsupported
from kbroker.config.idle_keys import name_idle, name_idle_of_topics
from kbroker.config.listener_changes import (
    LISTENER_LIMITS,
    LISTENER_PREFIX,
    STORE_KEYS,
    ListenerHost,
    UnreadablePassword,
    check_existing,
    check_readable,
    is_of_all_listeners,
    is_of_listeners,
    listener_of_store,
)
from kbroker.config.sasl import check_of_any_listener
from kbroker.config.shares import password_encoders
from kbroker.config.topic_defaults import topic_defaults
from kbroker.controller.change_notifications import EXPIRY_MS
from kbroker.controller.znode_operations import SessionExpired, ZooKeeperError
from kbroker.protocol.config_def import ConfigError, ConfigKey, Scope
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.security.password_encoder import PasswordEncoder, PasswordError
from kbroker.security.stores import StoreError
from kbroker.segment.log_config import TOPIC_KEYS, LogConfig, check_log_config

if TYPE_CHECKING:
    from kbroker.controller.zookeeper import ZooKeeper

log = logging.getLogger(__name__)

TOPICS, BROKERS, DEFAULT_ENTITY = "topics", "brokers", "<default>"
EMPTY: Mapping[str, str] = MappingProxyType({})
SESSIONS_TO_WAIT_FOR = 5
"""Each of them is waited for by the question itself; where there is none any more, all fail at once."""

THREAD_POOLS = frozenset(
    {
        "num.io.threads",
        "num.network.threads",
        "num.replica.fetchers",
        "num.recovery.threads.per.data.dir",
        "background.threads",
        "log.cleaner.threads",
    }
)


class DynamicConfig:
    """The effective configuration of this broker and of every topic, kept up to date from ZooKeeper."""

    def __init__(self, static: BrokerConfig, zookeeper: ZooKeeper, broker_id: int) -> None:
        self.static = static
        self.broker = static
        """What holds now."""
        self.broker_overrides: dict[str, str] = {}
        self.default_overrides: dict[str, str] = {}
        self.topic_overrides: dict[str, dict[str, str]] = {}
        self.on_topic_change: Callable[[str], None] = lambda topic: None
        self.on_broker_change: Callable[[BrokerConfig, BrokerConfig], None] = lambda before, after: None
        self._followers: dict[str, list[Callable[[str], Awaitable[None]]]] = {}
        self.listeners = ListenerHost()
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._loaded_at = float("-inf")
        self._refreshing = asyncio.Lock()
        self._altering = asyncio.Lock()
        self._in_force: dict[str, str] = {}
        """Overrides that hold, of what does not change by itself: what listeners to come are made of."""
        self._stores: dict[str, str] = {}
        """Overrides of listeners' stores that hold."""
        self._unreadable: dict[str, str] = {}
        """Passwords that are set for this broker, and left out: why."""
        self._defaults: tuple[BrokerConfig, dict[str, Any]] | None = None
        self._topic_configs: dict[str, tuple[Mapping[str, Any], Mapping[str, str], LogConfig]] = {}
        """Both with what they were made of: worker threads ask, too, and may be late to put down what they have made.
        """

    # -- keeping up to date -------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read all overrides: at start, before the logs are opened.

        Raises ConfigError where this broker cannot start so: what may protect a listener is never left out.
        """
        self._loaded_at = asyncio.get_running_loop().time()
        self._take_defaults(await self._zookeeper.read_config(BROKERS, DEFAULT_ENTITY))
        await self._encrypt_anew()
        await self._take_overrides(await self._zookeeper.read_config(BROKERS, str(self._broker_id)))
        self._in_force = _checked_overrides(self.broker_overrides)
        try:
            config = self._with(self.broker_overrides, self._in_force, self._unreadable)
            check_readable(self.broker_overrides, self._unreadable, config)
            self._check_start(config)
        except ConfigError as error:
            checked = self._unreadable.keys() | set(filter(_is_checked, self.broker_overrides))
            names = ", ".join(sorted(checked))
            said = f" (ZooKeeper says at /config/brokers/{self._broker_id}: {names})" if names else ""
            if isinstance(error, UnreadablePassword):
                said += "; if that secret is lost, docs/security.md says how the broker starts again"
            raise ConfigError(f"{error}{said}") from error
        self._stores = _stores_of(self.broker_overrides)
        self.broker = config
        self._take_topics(await self._zookeeper.read_all_configs(TOPICS))

    async def watch(self) -> None:
        """Follow changes from now on; and those of which nobody tells any more, as recovering logs took so long."""
        await self._zookeeper.watch_config_changes(self.refresh)
        if asyncio.get_running_loop().time() - self._loaded_at < EXPIRY_MS / 2000:
            return
        topics = await self._zookeeper.read_all_configs(TOPICS)
        for topic in sorted(topics.keys() | self.topic_overrides.keys()):
            if topics.get(topic, {}) != self.topic_overrides.get(topic, {}):
                await self.refresh(TOPICS, topic)
        for entity in (DEFAULT_ENTITY, str(self._broker_id)):
            await self.refresh(BROKERS, entity)

    async def refresh(self, entity_type: str, entity: str) -> None:
        """Read one entity anew and apply what it says."""
        if entity_type == TOPICS:
            config = await self._zookeeper.read_config(TOPICS, entity)
            self._take_topics({entity: config})
            self.on_topic_change(entity)
            log.info("topic %s: configuration is now %s", entity, config or "the default")
        elif entity_type == BROKERS and entity in (DEFAULT_ENTITY, str(self._broker_id)):
            # One after the other, or what was read first might be taken last.
            async with self._refreshing:
                await self._refresh_broker(entity)
        for follow in self._followers.get(entity_type, ()):
            await follow(entity)

    async def _refresh_broker(self, entity: str) -> None:
        config = await self._zookeeper.read_config(BROKERS, entity)
        if entity == DEFAULT_ENTITY:
            self._take_defaults(config)
        else:
            await self._take_overrides(config)
        before = self.broker
        await self._change_listeners()
        self._stores = self._stores_with(self.broker_overrides, self._unreadable)
        self.broker = self._with(self.broker_overrides, self._in_force, self._unreadable)
        log.info("broker %s: dynamic configuration changed", entity)
        if entity != DEFAULT_ENTITY and self.waiting:
            log.info("broker %s: %s hold from the next start", entity, ", ".join(sorted(self.waiting)))
        self.on_broker_change(before, self.broker)

    def _take_defaults(self, stored: dict[str, str]) -> None:
        name_idle("all brokers", self.default_overrides, stored)
        self.default_overrides = stored

    async def _take_overrides(self, stored: Mapping[str, str]) -> None:
        before, known = self._unreadable, self.broker_overrides
        self.broker_overrides, self._unreadable = await self.decoded(stored)
        name_idle(f"broker {self._broker_id}", known, self.broker_overrides)
        for name, problem in self._unreadable.items():
            if problem != before.get(name):
                log.warning("the password in dynamic configuration %s is left out: %s", name, problem)

    async def _change_listeners(self) -> None:
        """Open and close listeners as ZooKeeper says, where that can be."""
        wanted = _checked_overrides(self.broker_overrides)
        if wanted == self._in_force and not self._unreadable:
            return
        try:
            config = self._with(self.broker_overrides, wanted, self._unreadable)
            check_readable(self.broker_overrides, self._unreadable, config)
            if wanted == self._in_force:
                return
            self._check_change(config)
            await self.listeners.prepare(config)
        except (ConfigError, ZooKeeperError) as error:
            log.error("the listeners stay as they are: %s", error)
            return
        await self.listeners.take(config)
        of_all = sorted({name for name, _ in wanted.items() ^ self._in_force.items() if is_of_all_listeners(name)})
        if of_all:
            log.info("%s: for listeners to come, and from the next start for those that there are", ", ".join(of_all))
        self._in_force = wanted

    def follow(self, entity_type: str, follower: Callable[[str], Awaitable[None]]) -> None:
        """Call this with the name of each entity of a type that has changed."""
        self._followers.setdefault(entity_type, []).append(follower)

    async def load_topics(self, topics: Sequence[str]) -> None:
        """Read the overrides of topics whose logs are about to be made: nobody is notified of new topics.

        A session that ends meanwhile is followed by another, and a server that lags behind (the controller's order
        came by another way) is waited for: a log without its topic's overrides would be wrong for as long as they
        stay as they are. (What is to be compacted would be deleted by its age.)
        """
        problem: ZooKeeperError | None = None
        for _ in range(SESSIONS_TO_WAIT_FOR):
            try:
                await self._zookeeper.sync()
                configs = await self._zookeeper.read_configs(TOPICS, topics)
            except SessionExpired as error:
                problem = error
            except ZooKeeperError as error:
                problem = error
                break
            else:
                self._take_topics(configs)
                return
        log.error("overrides of new topics not read, defaults hold until they change: %s", problem)

    def _take_topics(self, configs: Mapping[str, dict[str, str]]) -> None:
        name_idle_of_topics(self.topic_overrides, configs)
        for topic, config in configs.items():
            self._topic_configs.pop(topic, None)
            if config:
                self.topic_overrides[topic] = config
            else:
                self.topic_overrides.pop(topic, None)

    def _with(
        self, broker_overrides: Mapping[str, str], checked: Mapping[str, str], unreadable: Collection[str]
    ) -> BrokerConfig:
        """Return the configuration with a broker's overrides, and these of what does not change by itself."""
        alive = {name: text for name, text in broker_overrides.items() if listener_of_store(name) is None}
        broker_overrides = {**alive, **self._stores_with(broker_overrides, unreadable)}
        merged = dict(self.static.properties)
        for overrides, per_broker in ((self.default_overrides, False), (broker_overrides, True)):
            alive = {name: text for name, text in overrides.items() if not _is_checked(name)}
            merged.update(_valid_broker_overrides(alive, per_broker))
        config = resolve_broker_config({**merged, **checked})
        config.broker_id = self._broker_id
        return config

    def _stores_with(self, overrides: Mapping[str, str], unreadable: Collection[str]) -> dict[str, str]:
        """Return overrides of stores; a listener that is served keeps its own where one of them cannot be read: what is
        left would let in others.
        """
        served = {each.name for each in self.broker.parsed_listeners}
        keeping = {listener_of_store(name) for name in unreadable} & served
        new = {name: text for name, text in _stores_of(overrides).items() if listener_of_store(name) not in keeping}
        return {**new, **{name: text for name, text in self._stores.items() if listener_of_store(name) in keeping}}

    # -- the next start -----------------------------------------------------------------------------------------------

    @property
    def of_broker(self) -> tuple[object, ...]:
        """All that this broker's description is made of; what changes is replaced, not changed."""
        return self.broker, self.broker_overrides, self.default_overrides, self._in_force

    @property
    def waiting(self) -> dict[str, str]:
        """What is set for this broker, and could not be: it holds from its next start, if that can be."""
        return {
            name: text
            for name, text in self.broker_overrides.items()
            if _is_checked(name) and text != self._in_force.get(name)
        }

    def _check_start(self, config: BrokerConfig) -> None:
        refuse_unsupported(config)
        check_listeners(config)
        self.listeners.check_start(config)

    def _problem_of_start(self, overrides: Mapping[str, str], unreadable: Collection[str]) -> str | None:
        try:
            self._check_start(self._with(overrides, _checked_overrides(overrides), unreadable))
        except ConfigError as error:
            return str(error)
        return None

    # -- passwords ----------------------------------------------------------------------------------------------------

    async def encoded(
        self, overrides: Mapping[str, str], present: Mapping[str, str] = EMPTY, stored: Mapping[str, str] = EMPTY
    ) -> dict[str, str]:
        """Return a broker's overrides as they are stored; of passwords that are as in `present`, what is `stored`.

        Raises KafkaError without a secret to encrypt passwords.
        """
        passwords = set(filter(_is_password, overrides))
        unchanged = {name for name in passwords if present.get(name) == overrides[name]}
        found = {**overrides, **{name: stored[name] for name in unchanged}}
        names = passwords - unchanged
        if not names:
            return found
        try:
            encoder, _ = password_encoders(self.static)
            if encoder is None:
                raise ConfigError("Password encoder secret not configured: password.encoder.secret encrypts passwords")
            for name in names:
                found[name] = await asyncio.to_thread(encoder.encode, overrides[name])
        except (ConfigError, StoreError) as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return found

    async def decoded(self, overrides: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return a broker's stored overrides with their passwords, and why those that are left out cannot be read."""
        if not any(map(_is_password, overrides)):
            return dict(overrides), {}
        try:
            encoder, _ = password_encoders(self.static)
        except ConfigError as error:
            return await asyncio.to_thread(_decoded, overrides, None, str(error))
        return await asyncio.to_thread(_decoded, overrides, encoder)

    async def _encrypt_anew(self) -> None:
        """What is encrypted with password.encoder.old.secret gets the new one, before this broker starts."""
        encoder, old_encoder = password_encoders(self.static)
        if encoder is None or old_encoder is None:
            return

        async def readable(stored: Mapping[str, str]) -> dict[str, str]:
            found, _ = await asyncio.to_thread(_decoded, stored, old_encoder)
            return {name: found[name] for name in filter(_is_password, stored) if name in found}

        async def change(stored: dict[str, str]) -> dict[str, str]:
            return {**stored, **await self.encoded(await readable(stored))}

        entity = str(self._broker_id)
        passwords = await readable(await self._zookeeper.read_config(BROKERS, entity))
        if passwords:
            # It may start before there is a controller.
            await self._zookeeper.change_config(BROKERS, entity, change, needs_controller=False)
            log.info("dynamic configuration: %d password(s) encrypted with the new secret", len(passwords))

    # -- what holds ---------------------------------------------------------------------------------------------------

    def topic_config(self, topic: str) -> LogConfig:
        """Return the effective settings of a topic; for any thread."""
        defaults, overrides = self.topic_defaults(), self.topic_overrides.get(topic, EMPTY)
        key = topic if overrides else ""  # all topics without overrides share one object
        known = self._topic_configs.get(key)
        if known is None or known[0] is not defaults or known[1] is not overrides:
            known = self._topic_configs[key] = defaults, overrides, self._resolve_topic(topic, defaults, overrides)
        return known[2]

    def _resolve_topic(self, topic: str, defaults: Mapping[str, Any], overrides: Mapping[str, str]) -> LogConfig:
        values = dict(defaults)
        for name, text in overrides.items():
            try:
                values[TOPIC_KEYS[name].field] = TOPIC_KEYS[name].parse(text)
            except KeyError:
                log.warning("topic %s: unknown override %s is left out", topic, name)
            except ConfigError as error:
                log.warning("topic %s: override left out: %s", topic, error)
        return LogConfig(**values)

    def topic_defaults(self) -> dict[str, Any]:
        """Return what topics without overrides have: field of LogConfig -> value."""
        broker, known = self.broker, self._defaults
        if known is None or known[0] is not broker:
            known = self._defaults = broker, topic_defaults(broker)
        return known[1]

    # -- may this be set? ---------------------------------------------------------------------------------------------

    def check_topic_overrides(self, overrides: Mapping[str, str]) -> None:
        """Raise KafkaError INVALID_CONFIG when a topic cannot have these."""
        values = dict(self.topic_defaults())
        for name, text in overrides.items():
            key = TOPIC_KEYS.get(name)
            if key is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
            values[key.field] = _parsed(key, text)
        try:
            check_log_config(LogConfig(**values))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def check_broker_overrides(
        self, overrides: Mapping[str, str], per_broker: bool, unreadable: Collection[str] = ()
    ) -> None:
        """Raise KafkaError INVALID_CONFIG when a broker (or the default of all) cannot have these, and beside them
        passwords that cannot be read.
        """
        for name, text in overrides.items():
            key = key_of(name)
            if not per_broker and _is_per_broker(name) and text != self.default_overrides.get(name):
                problem = f"Cannot update these configs at default cluster level, broker id must be specified: {name}"
                raise KafkaError(ErrorCode.INVALID_CONFIG, problem)
            if key is None:
                continue
            is_of_a_listener = LISTENER_PREFIX.match(name) is not None and is_of_listeners(name)
            if key.scope is Scope.READ_ONLY and not is_of_a_listener:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Cannot update these configs dynamically: {name}")
            if key.is_sensitive and key.name not in STORE_KEYS and not is_of_a_listener:
                problem = f"It is set by listener, with listener.name.<listener>.<mechanism>. in front: {name}"
                raise KafkaError(ErrorCode.INVALID_CONFIG, problem)
            if name in STORE_KEYS:
                problem = f"Stores change by listener, with listener.name.<listener>. in front: {name}"
                raise KafkaError(ErrorCode.INVALID_CONFIG, problem)
            value = _parsed(key, text)
            if name in THREAD_POOLS:
                _check_thread_pool(name, value, getattr(self.broker, key.field))
        self._check_per_ip_overrides(overrides)
        if per_broker:
            try:
                config = self._becoming(overrides, unreadable)
                self._check_readable(overrides, unreadable, config)
                self._check_change(config)
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
            self._check_next_start(overrides, unreadable)

    def _check_readable(self, overrides: Mapping[str, str], unreadable: Collection[str], config: BrokerConfig) -> None:
        """Raise ConfigError where what is altered would hold without what cannot be read."""
        if _checked_overrides(overrides) != _checked_overrides(self.broker_overrides):
            check_readable(overrides, unreadable, config)
        changed = _stores_of(overrides).items() ^ _stores_of(self.broker_overrides).items()
        listeners = {listener_of_store(name) for name, _ in changed if name not in unreadable}
        deleted = self._unreadable.keys() - overrides.keys() - set(unreadable)
        listeners |= {listener_of_store(name) for name in deleted} - {None}
        check_readable({}, [name for name in unreadable if listener_of_store(name) in listeners], config)

    def _becoming(self, overrides: Mapping[str, str], unreadable: Collection[str]) -> BrokerConfig:
        """Return what the configuration becomes at once: listeners that stay as they are asked for are no reason to
        refuse others, though whoever wrote them wrote what cannot be.
        """
        wanted = _checked_overrides(overrides)
        is_as_it_was = wanted == _checked_overrides(self.broker_overrides)
        return self._with(overrides, self._in_force if is_as_it_was else wanted, unreadable)

    def _check_change(self, config: BrokerConfig) -> None:
        """Raise ConfigError where this broker cannot become so while it runs.

        The listeners' certificates must do: those of other files, or the same files with other contents.
        """
        refuse_unsupported(config)
        check_existing(self.broker, config)
        check_listeners(config)
        self.listeners.check_change(config)

    @asynccontextmanager
    async def altering(self) -> AsyncIterator[None]:
        """Within it this broker's overrides may be altered: one change at a time."""
        async with self._altering:
            try:
                yield
            finally:
                async with self._refreshing:
                    await self.listeners.discard()

    async def prepare(self, overrides: Mapping[str, str], unreadable: Collection[str] = ()) -> None:
        """Open the listeners that there are to be with these; raises KafkaError where one cannot be opened."""
        try:
            async with self._refreshing:  # or what is taken might be what another change has prepared
                await self.listeners.prepare(self._becoming(overrides, unreadable))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _check_next_start(self, overrides: Mapping[str, str], unreadable: Collection[str]) -> None:
        """With what this broker could not start again is refused, unless it cannot with what is set already."""
        try:
            for name, text in overrides.items():
                if text != self.broker_overrides.get(name):
                    check_of_any_listener(name, text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        problem = self._problem_of_start(overrides, unreadable)
        if problem is None or problem == self._problem_of_start(self.broker_overrides, self._unreadable):
            return
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"The broker could not start any more: {problem}")

    def _check_per_ip_overrides(self, overrides: Mapping[str, str]) -> None:
        text = overrides.get("max.connections.per.ip.overrides")
        if text is not None:
            try:
                _ = BrokerConfig(max_connections_per_ip_overrides=text).per_ip_overrides
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _decoded(
    overrides: Mapping[str, str], encoder: PasswordEncoder | None, without: str = "there is no password.encoder.secret"
) -> tuple[dict[str, str], dict[str, str]]:
    """Those with passwords that can be read, and of the others why not."""
    found, problems = dict(overrides), {}
    for name in filter(_is_password, overrides):
        try:
            if encoder is None:
                raise PasswordError(without)
            found[name] = encoder.decode(overrides[name])
        except (PasswordError, StoreError) as error:
            problems[name] = str(error)
            del found[name]
    return found, problems


def _is_checked(name: str) -> bool:
    """Whether it only changes together with others, after a check of all of them."""
    return is_of_listeners(name) or is_of_all_listeners(name)


def _stores_of(overrides: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in overrides.items() if listener_of_store(name) is not None}


def _is_password(name: str) -> bool:
    key = BROKER_KEYS.get(LISTENER_PREFIX.sub("", name))
    return key is not None and key.is_sensitive


def _parsed(key: ConfigKey, text: str) -> object:
    try:
        value: object = key.parse(text)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return value


def _check_thread_pool(name: str, value: object, present: int) -> None:
    assert isinstance(value, int)
    problem = None
    if value < 1:
        problem = "value should be at least 1"
    elif value < present / 2:
        problem = f"value should be at least half the current value {present}"
    elif value > present * 2:
        problem = f"value should not be greater than double the current value {present}"
    if problem:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {problem}")


def key_of(name: str) -> ConfigKey | None:
    """Return the broker's key that this is, if it is one, for all listeners or for a single one."""
    plain = LISTENER_PREFIX.sub("", name)
    return BROKER_KEYS.get("broker.id" if plain == "node.id" else plain)


def _is_per_broker(name: str) -> bool:
    """Whether no default of all brokers may say it: a listener's keys, unknown ones too, but for its limits."""
    if LISTENER_PREFIX.match(name):
        return LISTENER_PREFIX.sub("", name) not in LISTENER_LIMITS
    key = key_of(name)
    return key is not None and key.scope is Scope.PER_BROKER


def _checked_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return those of a broker's overrides that hold as listeners are opened, or from its start on."""
    return _valid_broker_overrides(
        {name: text for name, text in overrides.items() if _is_checked(name)}, per_broker=True
    )


def _valid_broker_overrides(overrides: Mapping[str, str], per_broker: bool) -> dict[str, str]:
    """Leave out what may not be dynamic, or is no longer valid."""
    valid = {}
    for name, text in overrides.items():
        key = key_of(name)
        is_of_a_listener = LISTENER_PREFIX.match(name) is not None
        if not per_broker and _is_per_broker(name):
            log.warning("dynamic broker configuration %s is left out: it is no default of all brokers", name)
            continue
        if key is not None and not is_of_a_listener:
            if key.is_sensitive or name in STORE_KEYS:
                log.warning("dynamic broker configuration %s is left out: it is set by listener", name)
                continue
            if key.scope is Scope.READ_ONLY:
                log.warning("dynamic broker configuration %s is left out: it cannot change while the broker runs", name)
                continue
        try:
            if key is not None:
                key.parse(text)
        except ConfigError as error:
            log.warning("dynamic broker configuration %s is left out: %s", name, error)
            continue
        valid[name] = text
    return valid
