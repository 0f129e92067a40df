"""What is read plainly equals what Typer makes of it, and what is wrong is told in Typer's words."""

from typing import Annotated, Any, Literal

import pytest
import typer
from typer.main import get_command

from kbroker.cli.plain_values import PlainValue, read_plainly

app = typer.Typer()


@app.command()
def take(
    names: Annotated[list[str] | None, typer.Argument()] = None,
    word: Annotated[Literal["red", "green"], typer.Option()] = "red",
    count: Annotated[int, typer.Option(min=1, max=9)] = 1,
    pause: Annotated[float | None, typer.Option(min=0.5)] = None,
    numbers: Annotated[list[int] | None, typer.Option("--number")] = None,
    loud: Annotated[bool, typer.Option("--loud")] = False,
    least: Annotated[int, typer.Option(min=2, max=5, clamp=True)] = 3,
    hexadecimal: Annotated[int, typer.Option(parser=lambda text: int(str(text), 16))] = 0,
) -> None:
    """Take values of all plain kinds."""


def read(*words: str, plainly: bool) -> dict[str, Any]:
    command: Any = get_command(app)
    if plainly:
        read_plainly(command)
    return dict(command.make_context("take", list(words)).params)


def as_read_plainly(parameter: Any) -> Any:
    """What becomes of the one parameter of a command."""

    class Command:
        def get_params(self, ctx: object) -> list[Any]:
            return [parameter]

    command = Command()
    read_plainly(command)
    (found,) = command.get_params(None)
    return found


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("a", "b"),
        ("--word", "green", "--count", "9", "--pause", "0.5"),
        ("--pause", "2", "--number", "3", "--number", "-4", "--loud"),
        ("--pause", "1e3", "--count", " 7 "),
        ("--least", "9", "--hexadecimal", "10"),
    ],
)
def test_a_value_read_plainly_is_the_value_that_typer_reads(words: tuple[str, ...]) -> None:
    assert read(*words, plainly=True) == read(*words, plainly=False)


@pytest.mark.parametrize(
    "words",
    [
        ("--word", "blue"),
        ("--count", "0"),
        ("--count", "10"),
        ("--count", "x"),
        ("--pause", "0.4"),
        ("--number", "1.5"),
    ],
)
def test_what_is_wrong_with_a_value_is_told_by_typer(words: tuple[str, ...]) -> None:
    told = []
    for plainly in (True, False):
        with pytest.raises(typer.BadParameter) as failure:
            read(*words, plainly=plainly)
        told.append(failure.value.format_message())
    assert told[0] == told[1] != ""


def test_commands_below_a_command_are_read_plainly_too() -> None:
    outer = typer.Typer()
    outer.add_typer(app, name="inner")
    outer.command()(take)
    command: Any = get_command(outer)
    read_plainly(command)
    inner = command.commands["inner"].commands["take"]
    found = inner.get_params(inner.make_context("take", []))
    assert any(isinstance(parameter._runtime_param, PlainValue) for parameter in found)


@pytest.mark.parametrize("change", ["more is said", "another method", "other parameters"])
def test_a_newer_typer_reads_for_itself_what_is_not_understood(change: str) -> None:
    class Parameter:
        _runtime_param: Any = None
        type_descriptor: Any = None

        def get_runtime_param(self) -> Any:
            return self._runtime_param or Runtime()

    class Runtime:
        def coerce(self, value: str, *others: Any, **more: Any) -> str:
            return f"{value} as typer reads it"

        read = coerce

    parameter = as_read_plainly(Parameter())
    reader = parameter.get_runtime_param()
    assert isinstance(reader, PlainValue)
    words = {
        "more is said": lambda: reader.coerce("x", parameter, None, strict=True),
        "another method": lambda: reader.read("x"),
        "other parameters": lambda: reader.coerce("x"),
    }
    assert words[change]() == "x as typer reads it"


def test_a_typer_that_reads_values_in_another_way_goes_on_as_it_is() -> None:
    class OldParameter:
        pass

    parameter = as_read_plainly(OldParameter())
    assert not isinstance(getattr(parameter, "_runtime_param", None), PlainValue)
