"""A development cluster with TLS, logins and access rules: clients of all kinds get in by the files it writes.

None of the passwords is in anything that is written or shown, but for those files.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as ConfluentProducer

import kbroker
from kbroker.dev.cluster import DevCluster
from kbroker.dev.secured import APP, READER, Secured
from kbroker.security.jaas import PLAIN_MODULE
from tests.fixtures.brokers import forget
from tests.fixtures.java import JavaTool
from tests.kbroker.cli.commands import Done
from tests.kbroker.cli.commands import kbroker as run

pytestmark = pytest.mark.slow

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
START_S = 90.0
PREFIXED = ("--resource-pattern-type", "prefixed")
PASSWORD = "sasl_password"


class SecuredCluster:
    """A cluster, and all that its users have seen of it."""

    def __init__(self, cluster: DevCluster) -> None:
        assert cluster.secured is not None
        self.cluster = cluster
        self.secured: Secured = cluster.secured
        self.seen: list[str] = [self.secured.description(cluster.bootstrap), json.dumps(cluster.description())]

    def file(self, user: str, name: str) -> Path:
        return self.secured.folder / user / name

    def run(self, user: str, *words: str, given: bytes = b"") -> Done:
        done = run("--profile", str(self.file(user, "profile.toml")), *words, given=given)
        self.seen += [done.stdout, done.stderr]
        return done

    @property
    def passwords(self) -> list[str]:
        found = json.loads((self.secured.folder / "passwords.json").read_text())
        return list(found.values())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    folder = tmp_path_factory.mktemp("secured")
    patient = {"zookeeper.session.timeout.ms": "30000"}  # the machine may stand still for a while
    cluster = DevCluster(folder, brokers=3, zookeeper="stand-in", secure=True, timeout=START_S, properties=patient)
    try:
        yield SecuredCluster(cluster.start())
    finally:
        for broker in cluster.brokers:
            forget(broker)
        cluster.kill()


@pytest.fixture
def topic(secured: SecuredCluster, topic_name: str) -> str:
    done = secured.run(APP, "topic", "create", topic_name, "--replicas", "3")
    assert done.returncode == 0, done.stderr
    return topic_name


def test_clients_of_python_and_librdkafka_and_the_command_line_get_in(secured: SecuredCluster, topic: str) -> None:
    with kbroker.Producer(**json.loads(secured.file(APP, "python.json").read_text())) as producer:
        producer.send(topic, b"of ours").result(60)
    other = ConfluentProducer(json.loads(secured.file(APP, "librdkafka.json").read_text()))
    errors: list[object] = []
    other.produce(topic, b"of librdkafka", on_delivery=lambda error, _: errors.append(error))
    assert other.flush(60) == 0
    assert errors == [None]
    assert secured.run(APP, "topic", "produce", topic, given=b"of the command line\n").returncode == 0
    with kbroker.Consumer(
        **json.loads(secured.file(READER, "python.json").read_text()), group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        read: set[bytes] = set()
        while len(read) < 3:
            read |= {bytes(record.value or b"") for record in consumer.poll(30)}
    assert read == {b"of ours", b"of librdkafka", b"of the command line"}


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed")
def test_kcat_gets_in(secured: SecuredCluster, topic: str) -> None:
    done = subprocess.run(
        [str(KCAT), "-F", str(secured.file(APP, "kcat.conf")), "-L", "-J", "-m", "30"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    secured.seen += [done.stdout, done.stderr]
    assert done.returncode == 0, done.stderr
    assert topic in {each["topic"] for each in json.loads(done.stdout)["topics"]}


def test_javas_tools_get_in(secured: SecuredCluster, topic: str, java_tool: JavaTool) -> None:
    listed = java_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", secured.cluster.bootstrap, "--list"),
        *("--command-config", str(secured.file(APP, "java.properties"))),
    )
    secured.seen.append(listed)
    assert topic in listed.split()


TOPICS, ACLS, CONFIGS, TOKENS = (
    "org.apache.kafka.tools.TopicCommand",
    "kafka.admin.AclCommand",
    "kafka.admin.ConfigCommand",
    "org.apache.kafka.tools.DelegationTokenCommand",
)


class JavaTools:
    """Kafka's tools, as a user starts them."""

    def __init__(self, secured: SecuredCluster, java_tool: JavaTool) -> None:
        self._secured = secured
        self._run = java_tool

    def __call__(self, user: str, *commands: tuple[str, ...]) -> list[str]:
        """Return what each command has written; all have to succeed."""
        server = ("--bootstrap-server", self._secured.cluster.bootstrap)
        login = str(self._secured.file(user, "java.properties"))
        written = [self._run(tool, *server, "--command-config", login, *words) for tool, *words in commands]
        self._secured.seen += written
        return written


@pytest.mark.timeout(600)
def test_kafkas_tools_administer_topics_rules_users_limits_and_tokens(
    secured: SecuredCluster, java_tool: JavaTool, topic_name: str
) -> None:
    run_tools = JavaTools(secured, java_tool)
    eve = ("--entity-type", "users", "--entity-name", "eve")
    limits = ("--entity-type", "users", "--entity-name", "eve", "--entity-type", "clients", "--entity-default")
    topic = ("--entity-type", "topics", "--entity-name", topic_name)
    password = secrets.token_urlsafe(12)
    written = run_tools(
        "admin",
        (TOPICS, "--create", "--topic", topic_name, "--partitions", "3", "--replication-factor", "3"),
        (TOPICS, "--describe", "--topic", topic_name),
        (CONFIGS, *topic, "--alter", "--add-config", "retention.ms=86400000"),
        (CONFIGS, *topic, "--describe"),
        (CONFIGS, *eve, "--alter", "--add-config", f"SCRAM-SHA-512=[iterations=5000,password={password}]"),
        (CONFIGS, *limits, "--alter", "--add-config", "producer_byte_rate=12345"),
        (CONFIGS, *eve, "--alter", "--add-config", "consumer_byte_rate=54321"),
        (CONFIGS, *eve, "--describe"),
        (CONFIGS, *limits, "--describe"),
        (ACLS, "--add", "--allow-principal", "User:eve", "--operation", "Read", "--topic", topic_name),
        (
            ACLS,
            "--add",
            "--deny-principal",
            "User:eve",
            "--deny-host",
            "10.0.0.7",
            "--operation",
            "All",
            "--group",
            "*",
        ),
        (ACLS, "--add", "--allow-principal", "User:eve", "--producer", "--topic", f"{topic_name}-", *PREFIXED),
        (ACLS, "--list", "--topic", f"{topic_name}-orders", "--resource-pattern-type", "match"),
        (ACLS, "--list", "--principal", "User:eve"),
        (TOKENS, "--create", "--max-life-time-period", "86400000", "--renewer-principal", "User:app"),
    )
    assert f"Topic: {topic_name}\tPartition: 2" in written[1]
    assert "retention.ms=86400000" in written[3]
    assert "SCRAM-SHA-512=iterations=5000" in written[7]
    assert "consumer_byte_rate=54321" in written[7]
    assert "producer_byte_rate=12345" in written[8]
    assert f"name={topic_name}-, patternType=PREFIXED" in written[12]
    assert "principal=User:eve, host=10.0.0.7, operation=ALL, permissionType=DENY" in written[13]
    token_id, secret = re.findall(r"^([\w-]{22})\s+(\S+)", written[14], re.MULTILINE)[0]
    by_password = {"sasl_username": "eve", PASSWORD: password}
    by_token = {"sasl_username": token_id, PASSWORD: secret, "sasl_tokenauth": True}
    settings = json.loads(secured.file(APP, "python.json").read_text())
    for login in (by_password, by_token):
        with kbroker.Admin(**settings | login) as admin:
            assert topic_name in admin.list_topics()
    written = run_tools(
        "admin",
        (TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", secret),
        (TOKENS, "--describe", "--owner-principal", "User:admin"),
        (TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", secret),
        (TOKENS, "--describe", "--owner-principal", "User:admin"),
        (ACLS, "--remove", "--force", "--topic", topic_name),
        (ACLS, "--remove", "--force", "--topic", f"{topic_name}-", *PREFIXED),
        (ACLS, "--remove", "--force", "--group", "*"),
        (ACLS, "--list", "--principal", "User:eve"),
        (CONFIGS, *eve, "--alter", "--delete-config", "SCRAM-SHA-512"),
        (CONFIGS, *eve, "--alter", "--delete-config", "consumer_byte_rate"),
        (CONFIGS, *limits, "--alter", "--delete-config", "producer_byte_rate"),
        (CONFIGS, *eve, "--describe"),
        (TOPICS, "--delete", "--topic", topic_name),
    )
    assert [token_id in each for each in written[1:4:2]] == [True, False]
    assert "principal=User:eve" not in written[7]
    assert not re.search("SCRAM|byte_rate", written[11])


def test_who_may_only_read_is_refused_in_one_line_and_nobody_gets_in_without_a_login(
    secured: SecuredCluster, topic: str
) -> None:
    done = secured.run(READER, "topic", "produce", topic, given=b"no\n")
    assert done.returncode == 1
    assert "AUTHORIZATION_FAILED" in done.stderr
    assert secured.run(READER, "topic", "create", f"{topic}-2").returncode == 1
    assert secured.run(APP, "acl", "list").returncode == 1
    assert secured.run("admin", "acl", "list").returncode == 0
    assert run("topic", "list", "-b", secured.cluster.bootstrap, "-X", "request.timeout.ms=2000").returncode == 1


def test_no_password_is_in_any_log_or_answer(
    secured: SecuredCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = json.loads(secured.file(APP, "python.json").read_text())
    with caplog.at_level(logging.DEBUG):
        for wrong in ("", *secured.passwords):
            if wrong != settings[PASSWORD]:
                with (
                    pytest.raises(kbroker.ClientError) as caught,
                    kbroker.Admin(**settings | {PASSWORD: wrong}) as admin,
                ):
                    admin.describe_cluster()
                secured.seen += [str(caught.value), repr(caught.value), repr(caught.value.__cause__)]
        assert secured.run("admin", "-X", "sasl.password=wrong", "topic", "list").returncode == 1
        for broker_id in "123":
            shown = secured.run("admin", "config", "describe", "broker", broker_id, "--all")
            assert shown.returncode == 0, shown.stderr
            assert "sasl.jaas.config" in shown.stdout
        secured.run("admin", "user", "list")
        kept_secret = [*secured.passwords, of_a_token(secured), of_a_listener_to_come(secured)]
    secured.seen.append(caplog.text)
    logs = [*secured.cluster.data_dir.rglob("*.log*")]
    texts = {file.name for file in logs}
    assert {"broker.log", "zookeeper.log"} <= texts
    kept = {str(file): file.read_bytes().decode(errors="replace") for file in logs if file.is_file()}
    kept |= {f"output {number}": text for number, text in enumerate(secured.seen)}
    assert not [place for place, text in kept.items() if any(secret in text for secret in kept_secret)]
    others = [*secured.cluster.data_dir.rglob("*")]
    readable = [file for file in others if file.is_file() and file.stat().st_mode & 0o077]
    told = [str(file) for file in readable if any(each.encode() in file.read_bytes() for each in kept_secret)]
    assert not told


def of_a_token(secured: SecuredCluster) -> str:
    """The secret of a token that somebody has made, logged in by, renewed and ended."""
    made = run("--profile", str(secured.file("admin", "profile.toml")), "token", "create", "--format", "json")
    assert made.returncode == 0, made.stderr
    token = json.loads(made.stdout)[0]
    settings = json.loads(secured.file("admin", "python.json").read_text())
    login = {"sasl_username": token["token_id"], PASSWORD: token["hmac"], "sasl_tokenauth": True}
    with kbroker.Admin(**settings | login) as admin:
        admin.list_topics()
    for words in (("describe",), ("renew", token["token_id"]), ("expire", token["token_id"])):
        assert secured.run("admin", "token", *words).returncode == 0
    with pytest.raises(kbroker.ClientError) as caught, kbroker.Admin(**settings | login) as admin:
        admin.list_topics()
    secured.seen += [str(caught.value), repr(caught.value)]
    return str(token["hmac"])


def of_a_listener_to_come(secured: SecuredCluster) -> str:
    """The password of a listener that is refused for lack of a secret to encrypt it, and for what is no JAAS."""
    password = secrets.token_urlsafe(12)
    key = "listener.name.more.plain.sasl.jaas.config"
    for entry in (f'{PLAIN_MODULE} required user_eve="{password}";', f'{PLAIN_MODULE} user_eve="{password}', password):
        more = ("--set", "listener.name.more.sasl.enabled.mechanisms=PLAIN")
        done = secured.run("admin", "config", "alter", "broker", "1", "--set", f"{key}={entry}", *more)
        assert done.returncode == 1, done.stdout
    return password
