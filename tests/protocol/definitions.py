"""Every message that there is, in one order, whatever was imported before: test processes must find the same tests."""

from kbroker.client.group import user_data
from kbroker.protocol import apis, schema
from kbroker.protocol.schema import Message

assert user_data.StickyUserData in schema.DATA, "and those beside"
MESSAGES: list[type[Message]] = sorted(
    (
        message
        for message in (*(m for api in apis.API_BY_KEY.values() for m in (api.request, api.response)), *schema.DATA)
        if message.__module__.startswith("kbroker.")  # tests declare some, too
    ),
    key=lambda message: message.__name__,
)
