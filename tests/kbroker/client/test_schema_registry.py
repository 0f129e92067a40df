"""What a schema registry says, and when it says nothing."""

import base64
import threading
import time
import traceback

import pytest

from kbroker.client.schema_registry import Registry, RegistryError, UnknownSchemaError, registry_at
from tests.spark_connector.registries import serving

SCHEMA = '{"type":"long"}'
ANSWERS = {"/schemas/ids/1": {"schema": SCHEMA}, "/subjects/t-value/versions/latest": {"id": 1, "schema": SCHEMA}}


def test_schemas_are_asked_for_once_and_subjects_each_time() -> None:
    with serving(ANSWERS) as fake:
        assert [registry_at(fake.url).schema(1) for _ in range(3)] == [SCHEMA] * 3
        assert [registry_at(fake.url).latest("t-value") for _ in range(2)] == [(1, SCHEMA)] * 2
        assert fake.asked == ["/schemas/ids/1", *["/subjects/t-value/versions/latest"] * 2]


def test_a_registry_that_is_away_is_told_after_the_tries() -> None:
    with serving(ANSWERS) as fake:
        pass
    began = time.monotonic()
    with pytest.raises(RegistryError, match=f"{fake.url}/schemas/ids/1.*refused"):
        Registry(fake.url, retry_for=0.4).schema(1)
    assert time.monotonic() - began > 0.1, "it was asked once only"


def test_a_registry_that_comes_back_is_asked_again() -> None:
    with serving(ANSWERS) as fake:
        port = int(fake.url.rpartition(":")[2])
    found: list[str] = []
    asking = threading.Thread(target=lambda: found.append(Registry(fake.url).schema(1)))
    asking.start()
    time.sleep(0.05)
    with serving(ANSWERS, port):
        asking.join(30)
    assert found == [SCHEMA]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_errors_that_pass_are_asked_again(status: int) -> None:
    with serving(ANSWERS) as fake:
        fake.failures = [(status, b"busy")] * 2
        assert Registry(fake.url).schema(1) == SCHEMA


@pytest.mark.parametrize(
    ("status", "body"),
    [(401, b"who are you?"), (404, b"<html>"), (404, b'{"error_code":404}'), (200, b"<html>"), (200, b"[]")],
)
def test_what_is_no_answer_of_a_registry_is_told_at_once(status: int, body: bytes) -> None:
    with serving(ANSWERS) as fake:
        fake.failures = [(status, body)]
        with pytest.raises(RegistryError, match="schemas/ids/1"):
            Registry(fake.url).schema(1)
        assert len(fake.asked) == 1


def test_an_id_that_the_registry_does_not_know_is_told_apart() -> None:
    with serving({**ANSWERS, "/schemas/ids/2": {"schema": "message M {}", "schemaType": "PROTOBUF"}}) as fake:
        with pytest.raises(UnknownSchemaError, match=r"schemas/ids/9: there is no such schema"):
            Registry(fake.url).schema(9)
        with pytest.raises(UnknownSchemaError, match="is PROTOBUF"):
            Registry(fake.url).schema(2)


def test_a_given_schema_has_an_id_of_its_own_or_the_error_says_what_to_do() -> None:
    with serving({**ANSWERS, '/subjects/t-value {"type":"int"}': {"id": 5, "version": 1}}) as fake:
        assert Registry(fake.url).id_of("t-value", '{"type":"int"}') == 5
        with pytest.raises(RegistryError, match=r"subjects/t-value does not have the schema .* register it there"):
            Registry(fake.url).id_of("t-value", SCHEMA)
        fake.failures = [(404, b'{"error_code":40401}')]
        with pytest.raises(RegistryError, match="register it there"):
            Registry(fake.url).id_of("t-value", SCHEMA)


def test_name_and_password_in_the_url_log_in_and_stand_in_no_message() -> None:
    with serving(ANSWERS) as fake:
        url = fake.url.replace("//", "//fly%40er:hunt%2Fer:2@")
        assert Registry(url).schema(1) == SCHEMA
        assert Registry(fake.url).schema(1) == SCHEMA
        assert fake.logins == [f"Basic {base64.b64encode(b'fly@er:hunt/er:2').decode()}", None]
        with pytest.raises(UnknownSchemaError) as unknown:
            Registry(url).schema(9)
        fake.failures = [(401, b"who are you?")]
        with pytest.raises(RegistryError, match=f"^{fake.url}/schemas/ids/1: .*401") as refused:
            Registry(url).schema(1)
    with pytest.raises(RegistryError) as away:
        Registry(url, retry_for=0).schema(1)
    for raised in (unknown, refused, away):
        assert "hunt" not in str(raised.value)
        assert "fly" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://user:hunter@registry",
        "http://user:hunter/2@registry",
        "http://user:12/hunter@registry",
        "http://user:hunter@registry:eighty",
        "http://user:hunter@",
        "http://[::1",
        "hunter",
    ],
)
def test_a_url_that_is_none_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"http://host:port .*%2F") as refused:
        Registry(url)
    assert "hunter" not in "".join(traceback.format_exception(refused.value))
