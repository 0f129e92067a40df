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
    assert done.returncode == 2
    assert "security.protocol=MAGIC: allowed is PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL" in done.stderr


def test_a_setting_holds_for_its_command_and_not_for_the_next_one(broker: BrokerProcess) -> None:
    refused = kbroker("topic", "list", "-b", broker.bootstrap, "-X", "nonsense=1000")
    assert refused.returncode == 2
    assert "no client has the setting nonsense" in refused.stderr
    succeed("topic", "list", "-b", broker.bootstrap)


def test_a_profile_for_all_clients_is_taken_by_each_command_as_far_as_it_goes() -> None:
    words = ["-X", "acks=1", "-X", "fetch.min.bytes=2", "-X", "kafka.client.id=me"]
    assert take_settings(["topic", "list", *words]) == ["topic", "list"]
    assert settings_for("admin") == {"kafka.client.id": "me"}
    assert settings_for("producer") == {"acks": "1", "kafka.client.id": "me"}
    assert settings_for("consumer") == {"fetch.min.bytes": "2", "kafka.client.id": "me"}
    take_settings(["topic", "list"])


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("isolation.lvel=read_committed", "no client has the setting isolation.lvel: did you mean isolation.level?"),
        ("retries=3", "no client has the setting retries: `delivery_timeout_ms`"),
        ("foo=bar", "no client has the setting foo: docs/client-settings.md lists them"),
        ("isolation.level=foo", "isolation.level=foo: allowed is read_uncommitted, read_committed"),
        ("fetch.min.bytes=many", "fetch.min.bytes is a whole number, not 'many'"),
        ("compression.type=lzma", "compression.type=lzma: allowed is none, gzip"),
    ],
)
def test_a_setting_that_no_client_takes_is_refused_as_it_was_written(tmp_path: Path, setting: str, said: str) -> None:
    done = kbroker("topic", "produce", "t", "-b", "127.0.0.1:1", "-X", setting)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"kbroker: Invalid value for -X: {said}")
    profile = tmp_path / "own.toml"
    key, _, value = setting.partition("=")
    profile.write_text(f'{key} = "{value}"\n')
    done = kbroker("topic", "list", "--profile", str(profile))
    assert (done.returncode, done.stderr.partition(said)[0]) == (2, f"kbroker: Invalid value for --profile {profile}: ")


def test_names_of_security_protocols_may_be_written_small() -> None:
    take_settings(["topic", "list", "-X", "security.protocol=ssl"])
    assert client_settings() == {"security.protocol": "ssl"}
    take_settings(["topic", "list"])
