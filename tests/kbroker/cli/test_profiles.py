"""How the command line reaches a cluster: profiles, and settings over them."""

from dataclasses import Field, fields
from pathlib import Path

import pytest
import typer

from kbroker.cli.profiles import chosen_bootstrap, client_settings, profiles_file, settings_for, take_settings
from kbroker.client.security import Security
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import kbroker, succeed

PROFILES = """
[test]
bootstrap = "b1:9093,b2:9093"
security.protocol = "SASL_SSL"
sasl.mechanism = "PLAIN"
sasl.username = "alice"
sasl.password = "hunter2"
ssl.check.hostname = false
request.timeout.ms = 5000
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("KBROKER_BOOTSTRAP", raising=False)
    path = tmp_path / "kbroker" / "profiles.toml"
    path.parent.mkdir()
    path.write_text(PROFILES)
    path.chmod(0o600)
    return path


def test_a_profile_is_taken_from_anywhere_on_the_line_and_settings_go_over_it(file: Path) -> None:
    words = ["topic", "-X", "sasl.username=bob", "list", "--profile", "test", "-Xssl.cafile=a=b", "--", "-X", "c"]
    assert take_settings(words) == ["topic", "list", "--", "-X", "c"]
    assert client_settings() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": "hunter2",
        "ssl.check.hostname": "false",
        "request.timeout.ms": "5000",
        "ssl.cafile": "a=b",
    }
    assert chosen_bootstrap("127.0.0.1:9092") == "b1:9093,b2:9093"
    assert take_settings(["topic", "list"]) == ["topic", "list"]
    assert client_settings() == {}


@pytest.mark.parametrize("words", [["-b", "127.0.0.1:1"], ["-b127.0.0.1:1"], ["--bootstrap=127.0.0.1:1"]])
@pytest.mark.parametrize("named", ["in the environment too", "the default", "nowhere else"])
def test_brokers_on_the_command_line_are_asked_whatever_the_profile_says(
    file: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], named: str
) -> None:
    asked: list[str] = []

    class Asked(Exception):
        """The command has come as far as asking."""

    def admin(bootstrap: str, **options: object) -> None:
        asked.append(bootstrap)
        raise Asked

    monkeypatch.setattr("kbroker.cli.admin.Admin", admin)
    monkeypatch.setenv("KBROKER_PROFILE", "test")
    address = "127.0.0.1:9092" if named == "the default" else "127.0.0.1:1"
    if named == "in the environment too":
        monkeypatch.setenv("KBROKER_BOOTSTRAP", address)
    for line in ([word.replace("127.0.0.1:1", address) for word in words], []):
        with pytest.raises(Asked):
            kbroker("topic", "list", *line)
    assert asked == [address, "b1:9093,b2:9093"]


@pytest.mark.parametrize("known", [each for each in fields(Security) if not each.repr], ids=lambda one: one.name)
def test_no_secret_may_stand_in_a_profile_that_others_can_read(tmp_path: Path, known: "Field[object]") -> None:
    own = tmp_path / "own.toml"
    own.write_text(f'{known.name.replace("_", ".")} = "x"\n')
    own.chmod(0o644)
    with pytest.raises(typer.BadParameter, match="chmod 600"):
        take_settings(["topic", "list", "--profile", str(own)])


def test_a_profile_may_be_called_like_a_command(file: Path) -> None:
    file.write_text(PROFILES.replace("[test]", "[dev]"))
    assert take_settings(["--profile", "dev", "topic", "list"]) == ["topic", "list"]
    assert client_settings()["sasl.username"] == "alice"
    assert take_settings(["--profile", "test", "dev"]) == ["--profile", "test", "dev"]
    assert client_settings() == {}


def test_a_file_may_be_one_profile_and_is_named_by_its_path(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('bootstrap = "b9:9093"\nsasl.password = "hunter2"\n')
    with pytest.raises(typer.BadParameter, match="chmod 600"):
        take_settings(["topic", "list", "--profile", str(own)])
    own.chmod(0o600)
    assert take_settings(["topic", "list", "--profile", str(own)]) == ["topic", "list"]
    assert client_settings() == {"sasl.password": "hunter2"}
    assert chosen_bootstrap("127.0.0.1:9092") == "b9:9093"


def test_commands_that_reach_no_cluster_are_left_alone() -> None:
    assert take_settings(["dev", "-X", "a"]) == ["dev", "-X", "a"]


def test_a_variable_may_choose_the_profile(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBROKER_PROFILE", "test")
    take_settings(["topic", "list"])
    assert client_settings()["sasl.username"] == "alice"
    monkeypatch.setenv("KBROKER_PROFILES", "elsewhere")
    assert profiles_file() == Path("elsewhere")


def test_what_is_wrong_with_a_profile_is_said_in_one_line(file: Path) -> None:
    for words, said in ((["--profile", "prod"], "only test"), (["-X", "sasl.password"], "'this' is not KEY=VALUE")):
        with pytest.raises(typer.BadParameter, match=said):
            take_settings(["topic", "list", *words])
    file.chmod(0o644)
    with pytest.raises(typer.BadParameter, match="chmod 600"):
        take_settings(["--profile=test", "topic", "list"])
    file.write_text("[test\nsasl.password = hunter2")
    with pytest.raises(typer.BadParameter, match="no TOML") as caught:
        take_settings(["--profile=test", "topic", "list"])
    assert "hunter2" not in str(caught.value)
    file.unlink()
    done = kbroker("--profile", "test", "topic", "list")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "profiles.toml cannot be read" in done.stderr


def test_a_setting_reaches_the_client(broker: BrokerProcess, topic_name: str) -> None:
    reached = ("-X", f"bootstrap.servers={broker.bootstrap}")
    succeed(*reached, "topic", "create", topic_name)
    assert topic_name in succeed("topic", "list", *reached)
    done = kbroker("topic", "list", *reached, "-X", "security.protocol=MAGIC")
    assert done.returncode == 1
    assert "MAGIC" in done.stderr


def test_a_setting_holds_for_its_command_and_not_for_the_next_one(broker: BrokerProcess) -> None:
    refused = kbroker("topic", "list", "-b", broker.bootstrap, "-X", "nonsense=1000")
    assert refused.returncode == 1
    assert "nonsense" in refused.stderr
    succeed("topic", "list", "-b", broker.bootstrap)


def test_a_profile_for_all_clients_is_taken_by_each_command_as_far_as_it_goes() -> None:
    words = ["-X", "acks=1", "-X", "fetch.min.bytes=2", "-X", "kafka.client.id=me", "-X", "nonsense=3"]
    assert take_settings(["topic", "list", *words]) == ["topic", "list"]
    assert settings_for("admin") == {"kafka.client.id": "me", "nonsense": "3"}
    assert settings_for("producer") == {"acks": "1", "kafka.client.id": "me", "nonsense": "3"}
    assert settings_for("consumer") == {"fetch.min.bytes": "2", "kafka.client.id": "me", "nonsense": "3"}
    take_settings(["topic", "list"])
