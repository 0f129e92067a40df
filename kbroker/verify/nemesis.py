"""What breaks the cluster while clients work: what all nemeses offer, the one that does nothing, a choice by name.

A nemesis may stand between clients and brokers (it then returns an address of its own from `start`), or act on the
cluster from beside. All calls come from one thread, and may block. What it did is told as `Fault`s, which go into the
history:

    nemesis = make_nemesis("proxy", seed=7)
    bootstrap = nemesis.start("broker:9092")     # clients use this one
    fault = nemesis.inject(rng)                  # Fault("cut", {"client": "…", "broker": 2})
    nemesis.heal()                               # all that was injected is undone
    nemesis.stop()
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that was done to the cluster or to its links."""

    name: str
    """A word or two with hyphens: `cut`, `kill-broker`."""
    details: Mapping[str, str | int | float] = field(default_factory=dict)
    """What it was done to, and how much."""


class Nemesis(Protocol):
    """What injects faults, and undoes them."""

    def start(self, bootstrap: str) -> str:
        """Get ready; returns the bootstrap address that clients are to use."""

    def inject(self, rng: random.Random) -> Fault | None:
        """Begin one fault, drawn with `rng`; None when nothing can be done now. Earlier faults may still hold."""

    def heal(self) -> None:
        """Undo all that was injected; return when it is undone."""

    def stop(self) -> None:
        """Heal, and let go of everything: the address that `start` gave serves no longer."""


class NoNemesis:
    """Nothing breaks."""

    def start(self, bootstrap: str) -> str:
        """Clients go straight to the cluster."""
        return bootstrap

    def inject(self, rng: random.Random) -> Fault | None:
        """Do nothing."""
        return None

    def heal(self) -> None:
        """Nothing to undo."""

    def stop(self) -> None:
        """Nothing to let go of."""


def make_nemesis(name: str, seed: int) -> Nemesis:
    """Return the nemesis of a name: `none`, `proxy`, or the path of a YAML file of commands."""
    if name == "none":
        return NoNemesis()
    if name == "proxy":
        # Loaded only when wanted.
        module = importlib.import_module("kbroker.verify.proxy.nemesis")
        return cast(Nemesis, module.ProxyNemesis(seed=seed))
    from kbroker.verify.hooks import read_hooks

    return read_hooks(Path(name))
