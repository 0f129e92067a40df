"""Every instruction either has a result or is done at once."""

import typing

from kbroker.controller import instructions


def test_every_instruction_is_one_or_the_other() -> None:
    with_result = set(typing.get_args(instructions.WithResult))
    without = set(instructions.WITHOUT_RESULT)
    assert not with_result & without
    assert set(typing.get_args(instructions.Instruction)) == with_result | without
