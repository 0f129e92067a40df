"""The transcripts of tests/scenarios/groups: `>` lines are played, what follows must be what the group does then.

    KBROKER_WRITE_SCENARIOS=1 pytest tests/kbroker/coordinator/test_scenarios.py    writes them anew: read the diff

Commands: group delay=3000 max=2 · join NAME [instance=I] [version=9] [protocols=range,sticky] [session=MS]
[rebalance=MS] · restart NAME (as join, its member id forgotten) · sync NAME [share=NAME:TEXT]… · heartbeat NAME ·
leave NAME [instance=I] · written [ERROR] · wait MS · die
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode
from tests.kbroker.coordinator.play import GroupPlay, subscription

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios" / "groups").glob("*.txt"))


class Script:
    """Plays one scenario's commands."""

    def __init__(self) -> None:
        self.play = GroupPlay()

    def run(self, line: str) -> str:
        command, *words = line.split()
        names = [word for word in words if "=" not in word]
        options = [word.partition("=")[::2] for word in words if "=" in word]
        getattr(self, f"do_{command}")(names, options)
        return self.play.text()

    def do_group(self, names: list[str], options: list[tuple[str, str]]) -> None:
        given = dict(options)
        self.play = GroupPlay(int(given.get("delay", "0")), int(given.get("max", "1000000")))

    def do_join(self, names: list[str], options: list[tuple[str, str]]) -> None:
        given = dict(options)
        protocols = {name: subscription("t") for name in given.get("protocols", "range").split(",")}
        self.play.join(
            names[0],
            protocols,
            instance=given.get("instance"),
            version=int(given.get("version", "9")),
            session_ms=int(given.get("session", "10000")),
            rebalance_ms=int(given.get("rebalance", "60000")),
        )

    def do_restart(self, names: list[str], options: list[tuple[str, str]]) -> None:
        """A static member starts again without its member id."""
        self.play.ids.pop(names[0], None)
        self.do_join(names, options)

    def do_sync(self, names: list[str], options: list[tuple[str, str]]) -> None:
        shares = [value.partition(":")[::2] for _, value in options]
        self.play.sync(names[0], {name: share.encode() for name, share in shares})

    def do_heartbeat(self, names: list[str], options: list[tuple[str, str]]) -> None:
        self.play.heartbeat(names[0])

    def do_leave(self, names: list[str], options: list[tuple[str, str]]) -> None:
        self.play.leave(names[0], dict(options).get("instance"))

    def do_written(self, names: list[str], options: list[tuple[str, str]]) -> None:
        self.play.written(ErrorCode[names[0]] if names else ErrorCode.NONE)

    def do_wait(self, names: list[str], options: list[tuple[str, str]]) -> None:
        self.play.wait(int(names[0]))

    def do_die(self, names: list[str], options: list[tuple[str, str]]) -> None:
        self.play.die()


def replay(text: str) -> str:
    """Return the transcript with its answers made anew."""
    script = Script()
    lines = []
    for line in text.splitlines():
        if line.startswith("#"):
            lines.append(line)
        elif line.startswith(">"):
            lines += ["", line, script.run(line[1:])]
    return "\n".join(lines).lstrip("\n") + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_group_does_what_the_transcript_says(path: Path) -> None:
    written = path.read_text()
    replayed = replay(written)
    if os.environ.get("KBROKER_WRITE_SCENARIOS"):
        path.write_text(replayed)
    else:
        assert replayed == written


def test_there_are_transcripts_of_groups() -> None:
    assert SCENARIOS
