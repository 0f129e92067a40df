"""Holds the house to its rules: tests mirror modules, files and functions stay small, each module says its job.

What linters check (imports between rooms, style, types) isn't repeated here.
"""

import ast
import functools
import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("protocol", "segment", "controller", "kbroker", "spark_connector")
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
WITHOUT_MIRROR = {
    "protocol/messages": "tables of fields: every test that walks the index of APIs tests them",
}
"""Folders whose modules need no test file of their own, and why."""

MAY_PRINT = {
    "kbroker/cli": "it is the command line",
    "kbroker/dev/run.py": "the lines that say where the cluster serves, and what becomes of it",
    "kbroker/dev/embedded_zookeeper.py": "its --check",
    "kbroker/process.py": "why a broker could not start",
    "kbroker/client/generated_page.py": "writes the generated pages",
    "bench": "reports",
    "examples": "reports",
    "setup.py": "reports",
}
ONLY_IMPORTED_IN = {
    "kazoo": ("controller/zookeeper.py", "controller/zookeeper_connections.py"),
    "pyspark": "spark_connector/",
    "pyarrow": (
        "kbroker/client/arrow.py",
        "kbroker/client/json_columns.py",
        "kbroker/client/typed_values.py",
        "kbroker/cli/table_input.py",
        "kbroker/cli/table_output.py",
        "kbroker/page/parquet.py",
        "spark_connector/",
    ),
}
"""Libraries that one place of the production code knows."""


@pytest.fixture(autouse=True, scope="module")
def _trees_are_kept() -> Iterator[None]:
    """The garbage collector would look through thousands of syntax trees again and again."""
    gc.disable()
    yield
    gc.enable()
    tree.cache_clear()
    statements.cache_clear()


@functools.cache
def sources(*folders: str) -> tuple[Path, ...]:
    """Python files below the folders, relative to the root."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(sorted(path.relative_to(ROOT) for path in found))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(), filename=str(path))


@functools.cache
def line_count(path: Path) -> int:
    return len((ROOT / path).read_text().splitlines())


@functools.cache
def statements(path: Path) -> tuple[ast.stmt, ...]:
    """All statements of a module, those of functions and classes too, without what only a type checker runs."""
    found: list[ast.stmt] = []
    waiting: list[ast.AST] = [tree(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            found.append(node)
        is_for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for name in ("orelse",) if is_for_types else ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting.extend(getattr(node, name, ()))
    return tuple(found)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in statements(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def all_code() -> tuple[Path, ...]:
    return sources(*ROOMS, "tests", "bench", "examples")


def is_in(path: Path, places: object) -> bool:
    """Whether the path is one of the places or below it."""
    names = [places] if isinstance(places, str) else list(places)  # type: ignore[call-overload]
    return any(path.is_relative_to(name) for name in names)


def imported_packages(path: Path) -> set[str]:
    """What running the module may load; imports for the type checker alone do not count."""
    names: set[str] = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").partition(".")[0])
    return names


def test_every_module_has_a_test_file_in_the_same_place() -> None:
    missing = []
    for path in sources(*ROOMS):
        if path.name in ("__init__.py", "__main__.py") or is_in(path, WITHOUT_MIRROR):
            continue
        expected = Path("tests") / path.parent / f"test_{path.name}"
        if not (ROOT / expected).exists():
            missing.append(f"{expected} for {path}")
    assert not missing, "\n".join(missing)


@pytest.mark.slow
def test_every_module_says_its_job_in_a_docstring() -> None:
    named = (path for path in all_code() if not is_in(path, "tests"))
    silent = [str(path) for path in named if line_count(path) and not ast.get_docstring(tree(path))]
    assert not silent, "\n".join(silent)


def test_no_file_is_longer_than_600_lines() -> None:
    long = [f"{path}: {line_count(path)} lines" for path in all_code() if line_count(path) > MAX_FILE_LINES]
    assert not long, "\n".join(long)


@pytest.mark.slow
def test_no_function_is_longer_than_70_lines() -> None:
    long = []
    for path in all_code():
        for function in functions(path):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > MAX_FUNCTION_LINES:
                long.append(f"{path}:{function.lineno}: {function.name} has {length} lines")
    assert not long, "\n".join(long)


def test_no_module_has_a_leading_underscore() -> None:
    private = [path for path in all_code() if path.name.startswith("_") and not path.name.startswith("__")]
    assert not private


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {path.parent for path in sources("tests")}
    bare = [str(folder) for folder in folders if not (ROOT / folder / "__init__.py").exists()]
    assert not bare, "\n".join(bare)


def test_only_those_print_whose_work_it_is() -> None:
    prints = [
        f"{path}:{node.lineno}"
        for path in all_code()
        if not is_in(path, (*MAY_PRINT, "tests")) and "print(" in (ROOT / path).read_text()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not prints, "\n".join(prints)


@pytest.mark.parametrize("library", ONLY_IMPORTED_IN)
def test_a_library_with_one_place_is_imported_nowhere_else(library: str) -> None:
    places = ONLY_IMPORTED_IN[library]
    strangers = [
        str(path) for path in sources(*ROOMS) if library in imported_packages(path) and not is_in(path, places)
    ]
    assert not strangers, "\n".join(strangers)


def test_the_compiled_modules_know_nothing_of_cython() -> None:
    described = [path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.pxd")]
    for pxd in described:
        source = pxd.with_suffix(".py")
        assert (ROOT / source).exists(), f"{pxd} describes no module"
        assert "cython" not in imported_packages(source), f"{source} imports cython"


def test_a_note_of_work_to_do_names_its_issue() -> None:
    loose = []
    for path in all_code():
        if path == Path("tests/test_house.py"):
            continue
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            if "TODO" in line and "#" not in line.partition("TODO")[2]:
                loose.append(f"{path}:{number}")
    assert not loose, "\n".join(loose)


def test_a_tests_name_is_a_sentence() -> None:
    short = [
        f"{path}:{function.lineno}: {function.name}"
        for path in sources("tests")
        if path.name.startswith("test_")
        for function in functions(path)
        if function.name.startswith("test_") and function.name.count("_") < 3
    ]
    assert not short, "\n".join(short)


@pytest.mark.slow
def test_pages_that_code_names_can_be_read_by_who_has_the_repository() -> None:
    """Tests may write pages of their own."""
    made = {path.name for folder in (ROOT, ROOT / "docs") for path in folder.glob("*.md")}
    lost = [
        f"{path}:{number}: {page}"
        for path in all_code()
        if not is_in(path, "tests")
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1)
        for page in re.findall(r"[\w./-]+\.md\b", line)
        if not (ROOT / page).exists() and page not in made
    ]
    assert not lost, "\n".join(lost)
