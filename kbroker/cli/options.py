"""Options that several commands share, and how their values are read."""

from typing import Annotated, Literal

import typer

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_SECONDS = 30.0
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _note_where_from(context: typer.Context, value: str) -> str:
    """A profile has brokers too: those of the command line itself go over them, also where they equal the default."""
    source = context.get_parameter_source("bootstrap")
    if source is not None and source.name == "COMMANDLINE":
        from kbroker.cli.profiles import keep_bootstrap

        keep_bootstrap()
    return value


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="KBROKER_BOOTSTRAP",
        metavar="HOST:PORT,…",
        help="Brokers to ask first.",
        callback=_note_where_from,
    ),
]
OutputFormat = Literal["table", "wide", "json", "yaml"]
Format = Annotated[
    OutputFormat, typer.Option("--format", help="How to print; wide: all columns, and no line is broken.")
]
Watch = Annotated[
    float | None, typer.Option("--watch", "-w", min=0.1, help="Look again every so many seconds, until Ctrl-C.")
]
Looks = Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many looks.")]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A configuration key of the broker; may be repeated."),
]
TopicSetting = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A configuration key; may be repeated."),
]


def parse_settings(texts: list[str] | None, option: str = "--set") -> dict[str, str]:
    """Read `key=value` texts; a usage error names the one that is none."""
    settings: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        settings[key.strip()] = value.strip()
    return settings


def seconds_of(text: str, option: str = "--for") -> float:
    """Seconds of `90s`, `10m`, `1.5h`, `7d`, or of a bare number; a usage error names the option."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        found = float(number) * UNITS[unit]
    except ValueError:
        found = 0.0
    if not 0 < found < 366 * UNITS["d"]:
        raise typer.BadParameter(f"{text!r} is not a time as 90s, 10m, 1h or 7d", param_hint=option)
    return found
