"""Reading server.properties: defaults, files, listeners."""

from pathlib import Path

import pytest

from kbroker.config.broker_config import (
    BROKER_KEYS,
    documentation,
    main,
    parse_listeners,
    read_broker_config,
    read_properties,
)
from kbroker.protocol.config_def import ConfigError

MINIMAL = {"zookeeper.connect": "localhost:2181", "broker.id": "1"}


def test_defaults_are_kafkas() -> None:
    config = read_broker_config(MINIMAL)
    assert config.parsed_listeners == [("PLAINTEXT", "", 9092)]
    assert config.directories == ["/tmp/kafka-logs"]
    assert config.inter_broker_listener == "PLAINTEXT"
    assert (config.socket_request_max_bytes, config.num_partitions) == (104_857_600, 1)


def test_every_key_has_documentation_and_a_default_of_its_own_type() -> None:
    for key in BROKER_KEYS.values():
        assert key.doc, key.name
        shown = key.show(key.default)
        assert shown is None or key.parse(shown) == key.default, key.name


def test_a_java_properties_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# comment\n! another\n\nbroker.id = 7\nlog.dirs: /a,\\\n   /b\nrack\\ name x\\u00e9\nempty=\npath=C\\:\\\\x\n",
        encoding="utf-8",
    )
    assert read_properties(file) == {
        "broker.id": "7",
        "log.dirs": "/a,/b",
        "rack name": "xé",
        "empty": "",
        "path": "C:\\x",
    }


@pytest.mark.parametrize(("encoding", "name"), [("utf-8", "für Łódź"), ("iso-8859-1", "für uns")])
def test_a_file_may_be_utf_8_or_as_java_reads_it(tmp_path: Path, encoding: str, name: str) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(f"# {name}\nbroker.rack={name}\nescaped=\\u0141\xe9\n".encode(encoding))
    assert read_properties(file) == {"broker.rack": name, "escaped": "Łé"}


def test_only_what_ends_a_line_for_java_does(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    # 0x85 is the ellipsis of a Windows editor, and a line's end to Unicode.
    file.write_bytes(b"# wait\x85 broker.id=8\r\nbroker.id=7\rrack=a\xa0b\x0cc\nlog.dirs=/a,\\\r\n /b")
    assert read_properties(file) == {"broker.id": "7", "rack": "a\xa0b\x0cc", "log.dirs": "/a,/b"}


def test_blanks_around_a_value_are_those_of_java(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("password=\xa0pw\u3000 \x1f\t\nescaped=\\u0020a\\u2003\\t\n".encode())
    assert read_properties(file) == {"password": "\xa0pw\u3000", "escaped": "a\u2003"}


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", "broker.id=1".encode("utf-16")])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "binary").write_bytes(content)
    with pytest.raises(ConfigError, match="not a text file"):
        read_properties(tmp_path / "binary")


def test_node_id_stands_for_broker_id_and_must_agree() -> None:
    assert read_broker_config({"zookeeper.connect": "z:1", "node.id": "3"}).broker_id == 3
    with pytest.raises(ConfigError, match="differ"):
        read_broker_config({**MINIMAL, "node.id": "3"})


def test_unknown_keys_are_kept_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = read_broker_config({**MINIMAL, "my.own.key": "x", "listener.name.plaintext.max.connections": "5"})
    assert config.properties["my.own.key"] == "x"
    assert [r.getMessage() for r in caplog.records] == [
        "unknown configuration keys are kept, but mean nothing here: my.own.key"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://host:1", [("PLAINTEXT", "host", 1)]),
        ("a://:1, B://[::1]:2", [("A", "", 1), ("B", "::1", 2)]),
        ("X_1://127.0.0.1:0", [("X_1", "127.0.0.1", 0)]),
    ],
)
def test_listeners_are_parsed(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert parse_listeners("listeners", text) == expected


@pytest.mark.parametrize("text", ["", "host:1", "A://host", "A://host:x", "A://host:70000", "A://::1:5"])
def test_listeners_that_are_none_name_the_key(text: str) -> None:
    with pytest.raises(ConfigError, match="listeners"):
        parse_listeners("listeners", text)


def test_a_stale_page_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "configuration.md"
    page.write_text("old")
    assert main(["--check", str(page)]) == 1
    assert "not up to date" in capsys.readouterr().err
    page.write_text(documentation(), encoding="utf-8")
    assert main(["--check", str(page)]) == 0


def test_the_documentation_lists_every_public_key() -> None:
    page = documentation()
    assert all(f"| `{key.name}` |" in page for key in BROKER_KEYS.values() if not key.is_internal)
    assert "| `min.cleanable.dirty.ratio` |" in page
