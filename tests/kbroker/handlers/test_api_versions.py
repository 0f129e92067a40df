"""ApiVersions on a real broker: what is listed, and what a client of the future is told."""

import struct

import pytest

from kbroker.client.admin import Admin
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import decode_response, encode_request
from kbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.asking import Ask
from tests.kbroker.network.test_dispatch import exchange
from tests.kbroker.token_broker import login_of, make_token_broker
from tests.protocol.frames import joined

GROUP_APIS = {8, 9, 10, 11, 12, 13, 14}


@pytest.mark.parametrize("version", range(5))
async def test_every_version_lists_what_has_a_handler(ask: Ask, version: int) -> None:
    answer = await ask(ApiVersionsRequest(client_software_name="test", client_software_version="1.0"), version)
    assert answer.error_code is ErrorCode.NONE
    versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert versions[18] == (0, 4)
    assert (versions[0][1], versions[26][1], versions[28][1]) == (12, 5, 5), "whether or not transactions go so"
    supported = [(each.name, each.min_version, each.max_version) for each in answer.supported_features]
    assert supported == ([("transaction.version", 0, 2)] if version == 4 else [])
    assert answer.finalized_features_epoch == (0 if version >= 3 else -1)
    assert not answer.finalized_features
    assert versions[1] == (4, 17)
    assert versions[23][0] <= 2 <= versions[23][1]
    assert versions[68] == versions[69] == (0, 1)
    assert {76, 78}.isdisjoint(versions)  # share groups


async def test_only_who_asks_is_told_what_software_the_broker_is(ask: Ask) -> None:
    asked = ApiVersionsRequest(client_software_name="test", client_software_version="1", include_software=True)
    assert (await ask(asked, 4)).software.startswith("kbroker")
    assert (await ask(asked, 2)).software == ""
    plain = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    assert (await ask(plain, 4)).software == ""


async def test_what_software_it_is_is_told_after_the_login_only(make_broker: MakeBroker) -> None:
    broker, port = make_token_broker(make_broker)
    asked = ApiVersionsRequest(client_software_name="test", client_software_version="1", include_software=True)
    frame = joined(encode_request(asked, 4, 7, "test"))[4:]
    answer = await exchange(broker, frame, port)
    told = decode_response(answer, ApiVersionsResponse, 4)[1]
    assert (told.error_code, told.software) == (ErrorCode.NONE, "")
    async with Admin(f"127.0.0.1:{port}", **login_of("alice")) as admin:
        assert (await admin.describe_software(broker.broker_id)).startswith("kbroker")


async def test_an_unknown_version_is_answered_in_version_zero(broker: BrokerProcess) -> None:
    frame = struct.pack(">hhih", 18, 99, 7, 4) + b"test" + b"\x00" + b"anything"
    answer = await exchange(broker, frame)
    correlation_id, response = decode_response(answer, ApiVersionsResponse, 0)
    assert correlation_id == 7
    assert response.error_code is ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("a", "-1"), ("a", "1!")])
async def test_a_software_name_must_look_like_one(ask: Ask, name: str, version: str) -> None:
    answer = await ask(ApiVersionsRequest(client_software_name=name, client_software_version=version), 3)
    assert answer.error_code is ErrorCode.INVALID_REQUEST
