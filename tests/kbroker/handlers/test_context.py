"""What a handler learns about its request."""

from types import SimpleNamespace

from kbroker.handlers.context import RequestContext


def test_who_asks_is_taken_from_the_connection() -> None:
    connection = SimpleNamespace(listener="INSIDE", host="::1", principal="User:ANONYMOUS")
    ctx = RequestContext(3, 12, 7, "me", 1000, connection)
    assert (ctx.listener, ctx.client_host, ctx.principal) == ("INSIDE", "::1", "User:ANONYMOUS")
    assert (ctx.api_key, ctx.api_version, ctx.correlation_id, ctx.client_id) == (3, 12, 7, "me")
