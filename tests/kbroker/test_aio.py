import subprocess
import sys


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, kbroker, kbroker.aio; print([m for m in ('asyncio', 'protocol', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
