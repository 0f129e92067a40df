"""How options are taken apart, and how a wrong one is named."""

import pytest

from kbroker.spark_connector.options import GivenOptions, OptionError

KNOWN = ("startingOffsets", "includeHeaders", "minPartitions", "maxTriggerDelay", "mode")


def given(**options: str) -> GivenOptions:
    return GivenOptions({name.replace("__", "."): value for name, value in options.items()}, KNOWN)


def test_values_are_read_whatever_the_case_of_their_names() -> None:
    options = given(INCLUDEHEADERS="TRUE", minpartitions="7", maxTriggerDelay="15m", mode="permissive")
    assert options.boolean("includeHeaders", False)
    assert options.number("minPartitions", 1) == 7
    assert options.duration_ms("maxTriggerDelay") == 900_000
    assert options.choice("mode", ("PERMISSIVE", "FAILFAST"), "FAILFAST") == "PERMISSIVE"
    assert options.given("startingOffsets", "mode") == ["mode"]


def test_what_is_not_given_has_its_default() -> None:
    options = given()
    assert options.boolean("includeHeaders", True)
    assert options.number("minPartitions", 1) is None
    assert options.duration_ms("maxTriggerDelay") is None
    assert options.choice("mode", ("PERMISSIVE", "FAILFAST"), "FAILFAST") == "FAILFAST"


def read_all(name: str, value: str) -> None:
    options = GivenOptions({name: value}, KNOWN)
    options.boolean("includeHeaders", False)
    options.number("minPartitions", 1)
    options.duration_ms("maxTriggerDelay")
    options.choice("mode", ("PERMISSIVE", "FAILFAST"), "FAILFAST")
    options.client()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("startingOffset", "earliest", 'did you mean "startingOffsets"'),
        ("minPartitions", "0", "minPartitions is '0'"),
        ("minPartitions", "many", "a whole number"),
        ("minPartitions", "--5", "a whole number"),
        ("minPartitions", "²", "a whole number"),
        ("maxTriggerDelay", "soon", "maxTriggerDelay is 'soon'"),
        ("includeHeaders", "yes", 'must be "true" or "false"'),
        ("mode", "LOOSE", "PERMISSIVE or FAILFAST"),
        ("kafka.auto.offset.reset", "latest", "startingOffsets says"),
        ("kafka.key.deserializer", "x", "keyFormat"),
    ],
)
def test_a_wrong_option_is_named_with_what_to_do(name: str, value: str, said: str) -> None:
    with pytest.raises(OptionError) as refusal:
        read_all(name, value)
    assert said in str(refusal.value)


def test_kafka_options_go_to_the_client_and_those_of_java_alone_are_let_through() -> None:
    options = given(
        kafka__bootstrap__servers="h:1",
        kafka__fetch__max__bytes="9",
        kafka__session__timeout__ms="1",
        kafka__metric__reporters="of.mine",
        kafka__group__id="g",
    )
    assert options.bootstrap() == "h:1"
    assert options.client() == {"fetch.max.bytes": "9"}
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        given().bootstrap()


def test_a_registrys_address_is_named_without_what_may_be_a_password() -> None:
    for wrong in ("user:hunter@registry", "http://user:hun/ter@registry"):
        with pytest.raises(OptionError, match=r"^schemaRegistry: a registry's address must begin with http") as refusal:
            GivenOptions({"schemaRegistry": wrong}, ["schemaRegistry"]).registry("schemaRegistry")
        assert "hun" not in str(refusal.value)
    right = GivenOptions({"schemaRegistry": "http://user:hunter@registry:8081"}, ["schemaRegistry"])
    assert right.registry("schemaRegistry") == "http://user:hunter@registry:8081"
