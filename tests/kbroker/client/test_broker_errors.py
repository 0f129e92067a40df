from kbroker.client import broker_errors
from kbroker.client.error_base import BrokerError
from kbroker.protocol.errors import ErrorCode


def test_each_code_has_a_class_that_is_named_after_it() -> None:
    for code in ErrorCode:
        if code is ErrorCode.NONE:
            continue
        words = "".join(word.capitalize() for word in code.name.split("_"))
        name = words.removesuffix("Exception").removesuffix("Error") + "Error"
        found = getattr(broker_errors, name)
        assert BrokerError.by_code[code] is found
        assert (found.__doc__ or "").endswith(".")
