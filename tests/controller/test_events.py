"""Every event is either a result or has a procedure."""

import typing

from kbroker.controller import events
from kbroker.controller.machine import _PROCEDURES


def test_every_event_that_is_no_result_has_a_procedure() -> None:
    results = set(typing.get_args(events.Result))
    others = set(typing.get_args(events.Event)) - results - {events.TermEnded}
    assert others == set(_PROCEDURES)
