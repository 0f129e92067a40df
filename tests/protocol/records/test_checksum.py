import subprocess
import sys

from crc32c import crc32c as of_the_package

from kbroker.protocol.records.checksum import crc32c


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283 == of_the_package(b"123456789")
    assert crc32c(memoryview(b"123456789")[4:], crc32c(b"1234")) == 0xE3069283


def test_the_extension_is_found_without_its_package() -> None:
    script = (
        "import sys; from kbroker.protocol.records.checksum import crc32c; print(crc32c(b''), 'crc32c' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["0", "False"]


def test_where_the_extension_lies_elsewhere_the_package_is_asked() -> None:
    script = (
        "import sys; from importlib.machinery import PathFinder\n"
        "find, PathFinder.find_spec = PathFinder.find_spec, lambda name, path=None, target=None: (\n"
        "    None if name == 'crc32c._crc32c' and 'crc32c' not in sys.modules else find(name, path, target))\n"
        "from kbroker.protocol.records.checksum import crc32c; print(crc32c(b''), 'crc32c' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["0", "True"]
