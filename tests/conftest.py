"""What all tests share: the fixture plugins, and the report's first lines (ZooKeeper's is in its plugin)."""

import importlib
import platform
from pathlib import Path

pytest_plugins = (
    "tests.fixtures.zookeeper",
    "tests.fixtures.brokers",
    "tests.fixtures.data_path",
    "tests.fixtures.copies",
    "tests.fixtures.java",
    "tests.fixtures.spark",
)


def pytest_report_header() -> str:
    return f"codec: {codec_kind()}"


def codec_kind() -> str:
    """Say whether the compiled codec runs or the interpreted one."""
    try:
        module = importlib.import_module("protocol.codec")
    except ImportError as error:
        return f"not importable ({error})"
    file = Path(module.__file__ or "")
    if file.suffix == ".py":
        return f"interpreted ({file.name} on {platform.python_implementation()} {platform.python_version()})"
    return f"compiled ({file.name})"
