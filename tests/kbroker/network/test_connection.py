"""How a connection explains itself; its life over a real server is in test_server.py."""

import pytest

from kbroker.network.limits import explain_request_size, explain_size


@pytest.mark.parametrize(
    ("first_bytes", "size", "said"),
    [
        (b"\x16\x03\x01\x00", 0x16030100, "TLS"),
        (b"GET ", 0x47455420, "HTTP"),
        (b"\xff\xff\xff\xff", -1, "negative size -1"),
        (b"\x7f\xff\xff\xff", 0x7FFFFFFF, "socket.request.max.bytes=100"),
    ],
)
def test_a_refused_size_is_explained(first_bytes: bytes, size: int, said: str) -> None:
    assert said in explain_size(first_bytes, size, 100)


def test_a_request_too_large_for_its_api_is_named() -> None:
    assert "5000 bytes, Metadata: more than kbroker.small.request.max.bytes=100" in explain_request_size(3, 5000, 100)
    assert "unknown (API key 999)" in explain_request_size(999, 5000, 100)
