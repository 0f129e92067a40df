import pytest

from kbroker.client.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from kbroker.client.errors import ConfigurationError
from kbroker.page import options
from kbroker.page.options import PageOptions, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_login(host: str) -> None:
    assert is_loopback(host)
    assert PageOptions("b:1", host).token is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org", ""])
def test_any_other_address_takes_a_token(host: str) -> None:
    with pytest.raises(ConfigurationError, match="token"):
        PageOptions(b"b:1", host)  # type: ignore[arg-type]
    assert PageOptions("b:1", host, token="t" * 16).token


def test_a_token_that_can_be_guessed_is_none() -> None:
    with pytest.raises(ConfigurationError, match="16"):
        PageOptions("b:1", token="short")


def test_each_kind_of_client_gets_the_settings_that_it_knows() -> None:
    settings = {"isolation.level": "read_committed", "security.protocol": "SSL", "acks": "1"}
    options = PageOptions("b:1", settings=settings)
    assert "isolation.level" not in options.for_client(AdminConfig)
    assert options.for_client(ConsumerConfig)["isolation.level"] == "read_committed"
    assert options.for_client(ProducerConfig)["acks"] == "1"
    assert all(options.for_client(kind)["security.protocol"] == "SSL" for kind in (AdminConfig, ProducerConfig))


def test_a_question_is_given_up_sooner_than_a_change_unless_the_settings_say_otherwise() -> None:
    asks = AdminConfig.read({**PageOptions("b:1").for_client(AdminConfig), "bootstrap": "b:1"})
    assert (asks.request_timeout_ms, asks.default_api_timeout_ms) == (options.REQUEST_TIMEOUT_MS, 30_000)
    assert not asks.wait_for_brokers
    given = PageOptions("b:1", settings={"default.api.timeout.ms": "5"}).for_client(AdminConfig, bootstrap="b:1")
    assert AdminConfig.read(given).default_api_timeout_ms == 5
    given = PageOptions("b:1", settings={"request.timeout.ms": "120000"}).for_client(AdminConfig, bootstrap="b:1")
    asks = AdminConfig.read(given)
    assert (asks.request_timeout_ms, asks.default_api_timeout_ms) == (120_000, None), "changes may take as long"
    assert ConsumerConfig.read({**PageOptions("b:1").for_client(ConsumerConfig), "bootstrap": "b:1"})


def test_a_setting_that_nobody_knows_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"security\.protocl.*did you mean"):
        PageOptions("b:1", settings={"security.protocl": "SSL"})


def test_a_registrys_address_with_a_password_is_refused_and_not_repeated() -> None:
    for address in ("http://user:hidden@registry:8081", "user:hidden@registry:8081"):
        with pytest.raises(ConfigurationError, match="password") as refused:
            PageOptions("b:1", registry=address)
        assert "hidden" not in str(refused.value)
    assert PageOptions("b:1", registry="http://registry:8081").registry


def test_what_is_secret_is_not_shown() -> None:
    shown = repr(PageOptions("b:1", token="t" * 20, settings={"sasl.password": "hidden"}))
    assert "tttt" not in shown
    assert "hidden" not in shown
