"""The keys declared in keys_authorizer.py."""

import pytest

from kbroker.config.broker_config import BROKER_KEYS, read_broker_config
from kbroker.config.keys_authorizer import ACL_AUTHORIZER, AuthorizerKeys
from kbroker.protocol.config_def import ConfigError, config_keys

MINIMAL = {"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181"}


def test_the_keys_are_among_the_brokers_keys_and_cannot_change_while_it_runs() -> None:
    names = set(config_keys(AuthorizerKeys))
    assert {"authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"} <= names <= BROKER_KEYS.keys()


def test_super_users_are_separated_by_semicolons() -> None:
    given = {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:a; User:CN=b,C=DE ;"}
    assert read_broker_config({**MINIMAL, **given}).super_user_names == ["User:a", "User:CN=b,C=DE"]


@pytest.mark.parametrize(
    "given",
    [
        {"super.users": "alice"},
        {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
        {"authorizer.class.name": "com.example.Mine"},
    ],
)
def test_what_nobody_can_decide_by_is_refused_at_start(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        read_broker_config({**MINIMAL, **given})
