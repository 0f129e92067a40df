import pytest

from kbroker.client.errors import UnsupportedVersionError
from kbroker.client.session import STAGING_BYTES, Response, Session
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.frame import FrameError
from kbroker.protocol.headers import encode_response
from kbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.protocol.frames import joined


def feed(session: Session, data: bytes, step: int) -> list[Response]:
    responses = []
    while data:
        room = session.buffer()
        count = min(step, len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        responses += session.received(count)
    return responses


def answer(correlation_id: int, cluster_id: str = "c") -> bytes:
    message = MetadataResponse(brokers=[], cluster_id=cluster_id, topics=[])
    return joined(encode_response(message, 9, correlation_id))


@pytest.mark.parametrize("step", [1, 3, 7, 1000, 1 << 20])
def test_answers_come_out_whatever_pieces_the_bytes_come_in(step: int) -> None:
    session = Session("me")
    ids = [session.send(MetadataRequest(topics=None), 9)[0] for _ in range(3)]
    large = "x" * (3 * STAGING_BYTES if step > 10 else 300)
    data = answer(ids[0]) + answer(ids[2], large[:30000]) + answer(ids[1])
    responses = feed(session, data, step)
    assert [response.correlation_id for response in responses] == [ids[0], ids[2], ids[1]]
    assert responses[1].message.cluster_id == large[:30000]
    assert session.in_flight == 0


def test_a_frame_larger_than_allowed_is_refused_before_it_is_received() -> None:
    with pytest.raises(FrameError, match="1000 are allowed"):
        feed(Session("me", max_frame=1000), b"\x7f\xff\xff\xff", 4)


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n", "it speaks HTTP: 'HTTP/1.1 400 Bad Request'"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "it speaks TLS"),
        (b"\x16\x03\x01\x00\x05hello", "it speaks TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it says 'SSH-2.0-OpenSSH_9.2'"),
        (b"\x7f\x1b[2J is no text", "a frame announces"),
        ("Grüß Gott".encode(), "a frame announces"),
        (b"\n\n\n\n\n", "a frame announces"),
    ],
)
def test_a_peer_that_is_no_broker_is_told_by_its_first_words(first: bytes, told: str) -> None:
    with pytest.raises(FrameError) as refused:
        feed(Session("me", max_frame=1000), first, 100)
    assert str(refused.value).startswith(told)


def test_an_answer_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(KafkaError, match="nobody sent"):
        feed(Session("me"), answer(77), 100)


def test_the_newest_version_that_both_sides_have_is_chosen() -> None:
    session = Session("me")
    assert session.version_for(MetadataRequest) == 12
    session.versions = {3: (0, 7), 18: (9, 10)}
    assert session.version_for(MetadataRequest) == 7
    assert session.version_for(MetadataRequest, highest=5) == 5
    with pytest.raises(UnsupportedVersionError, match="serves versions 9-10"):
        session.version_for(ApiVersionsRequest)


def test_bytes_that_are_no_message_are_the_error_of_that_request_only() -> None:
    session = Session("me")
    first = session.send(ApiVersionsRequest(), 3)[0]
    second = session.send(ApiVersionsRequest(), 0)[0]
    good = encode_response(ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[]), 0, second)
    data = (5).to_bytes(4, "big") + first.to_bytes(4, "big") + b"\x01" + b"".join(good)  # type: ignore[arg-type]
    responses = feed(session, data, 100)
    assert responses[0].error is not None
    assert responses[1].message.error_code is ErrorCode.NONE
