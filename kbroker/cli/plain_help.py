"""Parameters in help as in man pages: `TOPIC...`, not `{TOPIC...}... <list[str]>` as newer Typers write them."""

import contextlib
import re
from typing import Any

TYPE_NAME = re.compile(r"<(?:list\[)?([^\[\]>]*?)(?: range)?\]?>")


def show_plainly(parameter: Any) -> None:
    """Have a parameter's help say its name and type plainly; another Typer's is left as it is."""
    with contextlib.suppress(AttributeError):
        _show_plainly(parameter)


def _show_plainly(parameter: Any) -> None:
    told = parameter.display_type_rich
    if parameter.param_type_name == "argument":
        usage = _usage(parameter)
        parameter._usage_display_name = lambda: usage
        parameter.display_type_rich = lambda ctx: ""
    elif parameter.metavar is None:
        parameter.display_type_rich = lambda ctx: TYPE_NAME.sub(r"<\1>", told(ctx) or "")


def _usage(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    if name.startswith("["):
        return str(name)
    if parameter.nargs != 1 and not name.endswith("..."):
        name += "..."
    return str(name) if parameter.required else f"[{name}]"
