"""A nemesis of the user's own commands: a YAML file says how to break the cluster, and how to undo it.

    faults:
      kill:
        do: docker kill kafka-$broker
        undo: docker start kafka-$broker
        choose: {broker: [1, 2, 3]}     # one of each is drawn, and given to both commands in the environment
        weight: 2                       # default 1: how often, beside the others
      slow-disk:
        do: ./slow.sh on
        undo: ./slow.sh off
    timeout_seconds: 60                 # default; a command that takes longer is ended and is an error

Commands run in `sh`, in the folder of the file. A `do` without an `undo` heals by itself.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kbroker.verify.nemesis import Fault

TIMEOUT_SECONDS = 60.0


class HookFailed(Exception):
    """A command of the user's failed, or the file says nothing that can be done."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One fault of the file."""

    name: str
    do: str
    undo: str | None
    choose: Mapping[str, Sequence[str | int | float]]
    weight: float


class HookNemesis:
    """Runs the commands of a file."""

    def __init__(self, hooks: Sequence[Hook], folder: Path, timeout_seconds: float) -> None:
        self._hooks = hooks
        self._folder = folder
        self._timeout_seconds = timeout_seconds
        self._open: list[tuple[Hook, Mapping[str, str | int | float]]] = []

    def start(self, bootstrap: str) -> str:
        """Clients go straight to the cluster."""
        return bootstrap

    def inject(self, rng: random.Random) -> Fault | None:
        """Draw a fault that does not hold yet, and run its command."""
        held = [(hook.name, dict(drawn)) for hook, drawn in self._open]
        (hook,) = rng.choices(self._hooks, [each.weight for each in self._hooks])
        drawn = {name: rng.choice(list(values)) for name, values in sorted(hook.choose.items())}
        if (hook.name, drawn) in held:
            return None
        # Even a command that fails may have done half of it: it is undone at the next healing.
        self._open.append((hook, drawn))
        self._run(hook.do, drawn)
        return Fault(hook.name, drawn)

    def heal(self) -> None:
        """Undo what holds, the latest first; each is tried, and the first error is raised at the end."""
        errors = []
        while self._open:
            hook, drawn = self._open.pop()
            if hook.undo is None:
                continue
            try:
                self._run(hook.undo, drawn)
            except HookFailed as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def stop(self) -> None:
        """Heal."""
        self.heal()

    def _run(self, command: str, drawn: Mapping[str, str | int | float]) -> None:
        environment = {**os.environ, **{name: str(value) for name, value in drawn.items()}}
        try:
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self._timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise HookFailed(f"{command!r} took more than {self._timeout_seconds:g} s") from error
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise HookFailed(f"{command!r} ended with {done.returncode}: {lines[-1] if lines else 'no word why'}")


def read_hooks(path: Path) -> HookNemesis:
    """Read a file of commands; HookFailed names what is wrong in it."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise HookFailed(f"the nemesis is none, proxy or a YAML file of commands: {error}") from error
    faults = document.get("faults") if isinstance(document, dict) else None
    if not isinstance(faults, dict) or not faults:
        raise HookFailed(f"{path}: no `faults:` with a name and a command for each")
    hooks = [_read_hook(path, str(name), fields) for name, fields in faults.items()]
    timeout = document.get("timeout_seconds", TIMEOUT_SECONDS)
    if not isinstance(timeout, int | float) or timeout <= 0:
        raise HookFailed(f"{path}: timeout_seconds is {timeout!r}, and must be a number above 0")
    return HookNemesis(hooks, path.resolve().parent, float(timeout))


def _read_hook(path: Path, name: str, fields: Any) -> Hook:
    known = {"do", "undo", "choose", "weight"}
    if not isinstance(fields, dict) or not isinstance(fields.get("do"), str):
        raise HookFailed(f"{path}: {name} has no `do:` command")
    strange = set(fields) - known
    if strange:
        raise HookFailed(
            f"{path}: {name} has {', '.join(sorted(map(str, strange)))}; known are {', '.join(sorted(known))}"
        )
    choose = fields.get("choose") or {}
    if not isinstance(choose, dict) or not all(isinstance(values, list) and values for values in choose.values()):
        raise HookFailed(f"{path}: choose of {name} must name lists: {{broker: [1, 2, 3]}}")
    weight = fields.get("weight", 1)
    if not isinstance(weight, int | float) or weight <= 0:
        raise HookFailed(f"{path}: weight of {name} is {weight!r}, and must be a number above 0")
    return Hook(name, fields["do"], fields.get("undo"), {str(key): values for key, values in choose.items()}, weight)
