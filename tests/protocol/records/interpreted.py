"""The record modules once more, from their sources: interpreted beside the compiled ones, in one process."""

import re
import sys
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from kbroker.protocol import records

ALIAS = "interpreted_records"
NAMES = (
    *("reader", "compression", "batch", "builder", "record", "control", "partitioner", "columns", "column_writer"),
    *("offset_map", "scanner", "batch_chunk", "record_filter"),
)


def load() -> dict[str, ModuleType]:
    """Modules by name; loaded once. Errors and Arrow's dataclasses are shared with the compiled ones."""
    folder = Path(records.__file__ or "").parent
    for name in NAMES:
        full_name = f"{ALIAS}.{name}"
        if full_name in sys.modules:
            continue
        source = (folder / f"{name}.py").read_text()
        source = re.sub(rf"kbroker\.protocol\.records\.({'|'.join(NAMES)})\b", rf"{ALIAS}.\1", source)
        spec = spec_from_loader(full_name, loader=None)
        assert spec is not None
        module = module_from_spec(spec)
        module.__file__ = str(folder / f"{name}.py")
        sys.modules.setdefault(ALIAS, ModuleType(ALIAS))
        sys.modules[full_name] = module
        exec(compile(source, module.__file__, "exec"), module.__dict__)
    return {name: sys.modules[f"{ALIAS}.{name}"] for name in NAMES}
