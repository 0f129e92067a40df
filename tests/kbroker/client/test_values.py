from collections.abc import Callable

import numpy as np
import pytest

from kbroker.client import values
from kbroker.client.errors import ConfigurationError
from kbroker.client.types import ElectionType


def test_numbers_of_other_kinds_are_numbers() -> None:
    assert values.whole_number("a number", np.int64(5)) == 5
    assert values.brokers_of(np.array([1, 2])) == [1, 2]


def test_whatever_gives_items_is_a_list() -> None:
    assert values.texts(name for name in ("a", "b")) == ["a", "b"]
    assert values.texts({"a": 1}) == ["a"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: values.texts("abc"), "a list of names is wanted, not the text 'abc'"),
        (lambda: values.texts(5), "a list of names is wanted, not 5"),  # type: ignore[arg-type]
        (lambda: values.texts(["a", 5]), "a name is a text, not 5"),  # type: ignore[list-item]
        (lambda: values.text("a name", "x" * 40_000), "a name has at most 32767 bytes, not 40000"),
        (lambda: values.text("a name", "\ud800"), "a name cannot be written as UTF-8"),
        (lambda: values.whole_number("n", True), "n is a whole number, not True"),
        (lambda: values.whole_number("n", 1 << 31), "n is a number of 32 bits, not 2147483648"),
        (lambda: values.mapping("a to b", ["x"]), "a dict of a to b is wanted, not ['x']"),  # type: ignore[arg-type]
        (lambda: values.brokers_of(["x"]), "a broker's id is a whole number, not 'x'"),  # type: ignore[list-item]
        (lambda: values.instance("an election", ElectionType, "x"), "an election is given as ElectionType, not 'x'"),
    ],
)
def test_wrong_values_are_named_with_what_is_wanted(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        call()
    assert said in str(refused.value)
