"""`kbroker token`: made, shown, renewed and ended by their ids; the secret is printed once."""

import json

import pytest

from tests.fixtures.brokers import MakeBroker
from tests.kbroker.cli.commands import fail, kbroker, rows, succeed
from tests.kbroker.token_broker import login_of, make_token_broker


def as_user(user: str) -> list[str]:
    return [f"-X{name}={value}" for name, value in login_of(user).items()]


def test_a_token_is_made_used_renewed_and_ended(make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    _, port = make_token_broker(make_broker)
    monkeypatch.setenv("KBROKER_BOOTSTRAP", f"127.0.0.1:{port}")
    alice, bob = as_user("alice"), as_user("bob")
    assert rows("token", "describe", *alice) == []
    (made,) = rows("token", "create", "-r", "User:bob", "--lifetime", "2d", *alice)
    token_id, secret = made["token_id"], made.pop("hmac")
    assert (made["owner"], made["renewers"]) == ("User:alice", ["User:bob"])
    assert rows("token", "describe", *bob) == [made]
    assert secret not in succeed("token", "describe", "--owner", "User:alice", *alice)
    by_token = ["-Xsecurity.protocol=SASL_PLAINTEXT", "-Xsasl.mechanism=SCRAM-SHA-256", "-Xsasl.tokenauth=true"]
    by_token += [f"-Xsasl.username={token_id}", f"-Xsasl.password={secret}"]
    assert json.loads(succeed("topic", "list", "--format", "json", *by_token)) == []
    assert "not by a token" in fail("token", "create", *by_token)
    renewed = kbroker("token", "renew", token_id, "--for", "90m", *bob)
    assert renewed.returncode == 0, renewed.stderr
    assert rows("token", "describe", *alice)[0]["expires"] < made["ends"]
    assert "owner and its renewers" in fail("token", "expire", token_id, *as_user("eve"))
    assert "no token 'x'" in fail("token", "renew", "x", *alice)
    assert kbroker("token", "expire", token_id, *bob).returncode == 0
    assert rows("token", "describe", *alice) == []
    refused = fail("topic", "list", *by_token)
    assert token_id in refused
    assert secret not in refused


def test_the_secret_of_a_new_token_stands_on_a_line_of_its_own(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = make_token_broker(make_broker)
    monkeypatch.setenv("KBROKER_BOOTSTRAP", f"127.0.0.1:{port}")
    lines = succeed("token", "create", *as_user("alice")).splitlines()
    (made,) = rows("token", "describe", *as_user("alice"))
    assert lines[0] == f"sasl.username={made['token_id']}"
    assert lines[1].startswith("sasl.password=")
    assert len(lines[1].partition("=")[2]) == 88
    assert "User:alice" in lines[-1]


def test_a_time_that_is_none_is_a_usage_error() -> None:
    done = kbroker("token", "create", "--lifetime", "soon")
    assert done.returncode == 2
    assert "--lifetime" in done.stderr
