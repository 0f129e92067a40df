"""The JAAS file that $KAFKA_OPTS names."""

from pathlib import Path

import pytest

from kbroker.config.jaas_file import DIGEST_MODULE, jaas_contexts, zookeeper_login
from kbroker.protocol.config_def import ConfigError
from kbroker.security.jaas import JaasError


def in_file(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, *more: str) -> None:
    (folder / "jaas.conf").write_text(text)
    options = [f"-Djava.security.auth.login.config={folder / 'jaas.conf'}", *more]
    monkeypatch.setenv("KAFKA_OPTS", " ".join(["-Xmx1g", *options]))


def client(name: str = "Client", module: str = DIGEST_MODULE, options: str = 'username="kafka" password="p"') -> str:
    return f"{name} {{ {module} required {options}; }};"


def test_without_a_file_nobody_logs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    assert (jaas_contexts(), zookeeper_login()) == ({}, None)


def test_the_context_client_is_for_zookeeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_file(tmp_path, monkeypatch, client())
    assert zookeeper_login() == ("kafka", "p")
    in_file(tmp_path, monkeypatch, client("KafkaServer"))
    assert zookeeper_login() is None


def test_another_context_may_be_named_and_the_log_in_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = client() + client("Other", options='username="other" password="q"')
    in_file(tmp_path, monkeypatch, two, "-Dzookeeper.sasl.clientconfig=Other")
    assert zookeeper_login() == ("other", "q")
    in_file(tmp_path, monkeypatch, two, "-Dzookeeper.sasl.client=false")
    assert zookeeper_login() is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (client(module="com.sun.security.auth.module.Krb5LoginModule"), "Krb5LoginModule"),
        (client(options='username="kafka"'), "no username and password"),
        ("Client {", "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str) -> None:
    in_file(tmp_path, monkeypatch, text)
    with pytest.raises(ConfigError, match=told):
        zookeeper_login()


def test_a_file_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_OPTS", f'"-Djava.security.auth.login.config={tmp_path / "none"}"')
    with pytest.raises(JaasError, match="cannot be read"):
        jaas_contexts()
