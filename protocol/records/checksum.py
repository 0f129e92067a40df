"""CRC-32C: the function of the crc32c package, without that package.

To know its own version the package reads its metadata, for which Python loads zip files and e-mail: a tenth of what a
broker has to do until it serves. So its extension is loaded by itself, from where the package lies.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:

    def _load():
        """Return the function, from the extension if it lies where it is expected, else from the package."""
        package = find_spec("crc32c")
        places = None if package is None else package.submodule_search_locations
        spec = places and PathFinder.find_spec("crc32c._crc32c", places)
        if not spec:
            from crc32c import crc32c

            return crc32c
        extension = module_from_spec(spec)
        spec.loader.exec_module(extension)
        return extension.crc32c

    crc32c = _load()
