"""Settings for clients, read back by those that they are for."""

import json
from pathlib import Path

import confluent_kafka
import pytest

from kbroker.cli.profiles import read_profile
from kbroker.client.client_config import ProducerConfig
from kbroker.client.settings import read_settings
from kbroker.dev.client_forms import FORMS, Access, shown_forms, write_forms

PASSWORD = "p_ss-w0rd"


@pytest.fixture
def access(tmp_path: Path) -> Access:
    return Access("127.0.0.1:9092,127.0.0.1:9093", tmp_path / "authority.pem", "app", PASSWORD)


@pytest.fixture
def folder(access: Access, tmp_path: Path) -> Path:
    write_forms(tmp_path / "app", access)
    return tmp_path / "app"


def test_each_file_is_for_its_owner_alone(folder: Path) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()} == {form.file: 0o600 for form in FORMS}


def test_our_clients_read_the_forms_of_python_and_spark_and_the_profile(folder: Path, access: Access) -> None:
    for settings in (
        json.loads((folder / "python.json").read_text()),
        json.loads((folder / "spark.json").read_text()),
        read_profile(str(folder / "profile.toml")),
    ):
        config = ProducerConfig(**read_settings(ProducerConfig, settings))
        assert config.bootstrap == access.bootstrap
        assert (config.login.user, config.login.password) == ("app", PASSWORD)
        assert str(access.authority) in (config.ssl_cafile, config.ssl_truststore_location)
        assert PASSWORD not in repr(config)


def test_librdkafka_and_kcat_read_the_same_settings(folder: Path, access: Access) -> None:
    settings = json.loads((folder / "librdkafka.json").read_text())
    lines = (folder / "kcat.conf").read_text().splitlines()
    assert dict(line.split("=", 1) for line in lines) == settings
    assert (settings["bootstrap.servers"], settings["sasl.password"]) == (access.bootstrap, PASSWORD)
    with pytest.raises(confluent_kafka.KafkaException, match=r"ssl\.ca\.location"):
        confluent_kafka.Producer(settings)  # every name and value is taken, but there is no such file


def test_java_reads_one_setting_a_line(folder: Path) -> None:
    lines = (folder / "java.properties").read_text().splitlines()
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="app" password="p_ss-w0rd";'
    assert f"sasl.jaas.config={jaas}" in lines
    assert "ssl.truststore.type=PEM" in lines


def test_what_is_shown_names_every_file_and_no_password(folder: Path, access: Access) -> None:
    shown = shown_forms(folder, access)
    assert all(f"{form.name}: " in shown and str(folder / form.file) in shown for form in FORMS)
    assert "SASL_SSL" in shown
    assert PASSWORD not in shown + repr(access)
    assert shown.count("********") == len(FORMS)
