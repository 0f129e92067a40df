"""`kbroker page`: what its words mean; what it serves is tested in tests/kbroker/page/."""

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.page import host_and_port
from kbroker.page import server
from kbroker.page.options import PageOptions
from tests.kbroker.cli.commands import fail, kbroker, succeed


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[PageOptions]:
    """What would have been served."""
    seen: list[PageOptions] = []

    def serve(options: PageOptions, listener: socket.socket) -> None:
        listener.close()
        seen.append(options)

    monkeypatch.setattr(server, "serve", serve)
    return seen


def test_the_page_is_read_only_on_loopback_unless_told_otherwise(served: list[PageOptions]) -> None:
    said = succeed("page", "-b", "b:1", "--listen", "127.0.0.1:0", "-X", "isolation.level=read_committed")
    assert "http://127.0.0.1:" in said
    [options] = served
    assert (options.bootstrap, options.allow_writes, options.token) == ("b:1", False, None)
    assert options.settings == {"isolation.level": "read_committed"}
    succeed("page", "--listen", "127.0.0.1:0", "--allow-writes")
    assert served[1].allow_writes


def test_elsewhere_a_token_is_made_and_told(served: list[PageOptions]) -> None:
    said = succeed("page", "--listen", "0.0.0.0:0")
    assert f"the token to log in: {served[0].token}" in said


def test_a_token_of_ones_own_is_not_told(
    served: list[PageOptions], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("my-token-from-a-file\n")
    said = succeed("page", "--listen", "0.0.0.0:0", "--token-file", str(tmp_path / "token"))
    monkeypatch.setenv("KBROKER_PAGE_TOKEN", "my-token-from-outside")
    said += succeed("page", "--listen", "0.0.0.0:0")
    assert [options.token for options in served] == ["my-token-from-a-file", "my-token-from-outside"]
    assert "my-token" not in said


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith("kbroker.page.") and name != "kbroker.page.options":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "uvicorn is not installed: pip install 'kbroker[page]'" in fail("page")


def test_an_address_that_is_taken_is_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "in use; --listen takes another" in fail("page", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), ("8080", ("127.0.0.1", 8080)), ("[::1]:7", ("::1", 7))],
)
def test_where_to_listen_is_a_host_and_a_port(text: str, expected: Any) -> None:
    assert host_and_port(text) == expected


@pytest.mark.parametrize("text", ["", "host:", ":80", "a:b", "a:99999"])
def test_what_is_no_address_is_wrong_usage(text: str) -> None:
    assert kbroker("page", "--listen", text).returncode == 2


def test_a_token_file_that_is_empty_is_not_a_page_without_login(served: list[PageOptions], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    assert "is empty" in fail("page", "--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "token"))
    assert not served
