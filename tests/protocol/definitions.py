"""Every message that there is, in one order, whatever was imported before: test processes must find the same tests."""

from kbroker.client.group import user_data
from kbroker.protocol import apis, schema
from kbroker.protocol.schema import Message

assert apis.API_BY_KEY, "loads all of protocol's"
assert user_data.StickyUserData in schema.DATA, "and those beside"
MESSAGES: list[type[Message]] = sorted(
    (
        message
        for message in (*schema.REQUESTS.values(), *schema.RESPONSES.values(), *schema.DATA)
        if message.__module__.startswith("kbroker.")  # tests declare some, too
    ),
    key=lambda message: message.__name__,
)
