import dataclasses

import pytest

from kbroker.coordinator.group_events import AnswerJoin, GroupSettings, JoinAnswer
from kbroker.protocol.errors import ErrorCode


def test_a_refused_join_has_kafkas_empty_values() -> None:
    answer = JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "m")
    assert (answer.generation_id, answer.protocol_name, answer.leader, answer.members) == (-1, None, "", ())


def test_instructions_are_values_that_nobody_changes() -> None:
    instruction = AnswerJoin("token", JoinAnswer(ErrorCode.NONE, "m"))
    assert instruction == AnswerJoin("token", JoinAnswer(ErrorCode.NONE, "m"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        instruction.request = "other"  # type: ignore[misc]


def test_the_defaults_are_kafkas() -> None:
    assert GroupSettings() == GroupSettings(3000, (1 << 31) - 1)
