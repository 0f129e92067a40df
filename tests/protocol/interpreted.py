"""Loads the interpreted form of the codec beside the compiled one, in the same process."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from kbroker import protocol
from kbroker.protocol import primitives

MODULES = ("primitives", "plans", "codec")


def load_interpreted() -> ModuleType:
    """Return protocol/codec.py run by the interpreter, upon primitives that are run by it too."""
    folder = Path(primitives.__file__).parent
    loaded: dict[str, ModuleType] = {}
    with patch.dict(sys.modules):
        for name in MODULES:
            spec = importlib.util.spec_from_file_location(f"kbroker.protocol.{name}", folder / f"{name}.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[f"kbroker.protocol.{name}"] = loaded[name] = module
            spec.loader.exec_module(module)
    assert sys.modules["kbroker.protocol.primitives"] is primitives
    assert protocol.__name__ == "kbroker.protocol"
    return loaded["codec"]
