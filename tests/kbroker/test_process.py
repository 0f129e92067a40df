"""The log and the limit of open files, each in a process of its own."""

import subprocess
import sys


def told_by(script: str, *launcher: str) -> str:
    """What a script writes to standard output and standard error."""
    command = [*launcher, sys.executable, "-c", f"from kbroker.process import *\n{script}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout + done.stderr


def test_events_are_lines_on_standard_error_with_time_level_and_place() -> None:
    script = "set_up_logging(); import logging; logging.getLogger('a.b').info('it began'); logging.debug('hidden')"
    line, end = told_by(script).split("\n")
    assert line.startswith("[20")
    assert line.endswith("] INFO it began (a.b)")
    assert end == ""


def test_a_process_that_has_its_own_logging_keeps_it() -> None:
    script = (
        "import logging; logging.basicConfig(format='mine: %(message)s'); set_up_logging();"
        " logging.info('hidden'); logging.warning('seen')"
    )
    assert told_by(script) == "mine: seen\n"


def test_as_many_files_as_may_be_are_open() -> None:
    script = "import resource; raise_descriptor_limit(); print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    assert told_by(script, "prlimit", "--nofile=100:200") == "200 200\n"
