"""Values of plain kinds, read without what the parser reads them with.

Typer (0.29 on) has pydantic read each value: its import, and an adapter for each parameter, cost a third of a list.
Texts, numbers, words of a choice and lists of these are read here when nothing is wrong with them; what is wrong,
and all else, is left to Typer, which also says what it says of it.
"""

import re
from typing import Any, Literal, get_args, get_origin

from kbroker.cli.plain_help import show_plainly

WHOLE = re.compile(r"[+-]?[0-9]{1,15}")
DECIMAL = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?")
NUMBERS = {int: WHOLE, float: DECIMAL}


class LeftToTyper(Exception):
    """The value, or its kind, is none of ours."""


class PlainValue:
    """Takes the place of what Typer makes for a parameter when its value is first read."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def coerce(self, value: Any, *others: Any, **more: Any) -> Any:
        """Return the value as the command takes it."""
        try:
            return _read(value, self._parameter)
        except (LeftToTyper, AttributeError, TypeError):  # the last two: a Typer whose parameters have changed
            return self._of_typer().coerce(value, *others, **more)

    def _of_typer(self) -> Any:
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of_typer(), name)


def read_plainly(command: Any) -> None:
    """Have parameters of a command, and of those below it, read and shown plainly; another Typer goes on as it is."""
    parameters_of = command.get_params

    def get_params(ctx: Any) -> list[Any]:  # with --help, which each command makes as it is asked
        parameters: list[Any] = parameters_of(ctx)
        for parameter in parameters:
            is_known = hasattr(parameter, "get_runtime_param") and hasattr(parameter, "type_descriptor")
            if is_known and getattr(parameter, "_runtime_param", parameter) is None:
                parameter._runtime_param = PlainValue(parameter)
            show_plainly(parameter)
        return parameters

    command.get_params = get_params
    for below in getattr(command, "commands", {}).values():
        read_plainly(below)


def _read(value: Any, param: Any) -> Any:
    takes_many = param.multiple or param.nargs == -1
    if value is None:
        return () if takes_many else None
    described = param.type_descriptor
    annotation, limits = described.annotation, described.parameter_info
    if limits.parser is not None or limits.clamp:
        raise LeftToTyper
    if takes_many and get_origin(annotation) is list and isinstance(value, list | tuple):
        kind = get_args(annotation)[0]
        return [_plain(each, kind, limits) for each in value]
    if takes_many:
        raise LeftToTyper
    return _plain(value, annotation, limits)


def _plain(value: Any, kind: Any, limits: Any) -> Any:
    if kind in NUMBERS and isinstance(value, str) and NUMBERS[kind].fullmatch(value):
        value = kind(value)
    is_right = value in get_args(kind) if get_origin(kind) is Literal else type(value) is kind
    is_within = kind not in NUMBERS or _is_within(value, limits)
    if not (is_right and is_within and (kind in (str, bool, int, float) or get_origin(kind) is Literal)):
        raise LeftToTyper
    return value


def _is_within(value: Any, limits: Any) -> bool:
    lowest, highest = limits.min, limits.max
    return type(value) in NUMBERS and (lowest is None or value >= lowest) and (highest is None or value <= highest)
