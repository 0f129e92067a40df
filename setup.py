"""Lists the compiled modules: every module with a .pxd beside it.

Without a C compiler (or with KBROKER_PURE=1) the package installs all the same and the .py files run.
"""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, CompileError, ExecError, LinkError, PlatformError

ROOMS = ("kbroker", "kbroker/protocol", "kbroker/segment", "kbroker/controller")
"""The last three are links to the rooms at the top of the repository; all is named `kbroker.…`."""
NOT_COMPILED = tuple(f"kbroker/protocol/{name}.pxd" for name in ("memory", "slots", "records/raw"))
"""They lend inline C to other modules; the .py beside has the same functions for those that are not compiled."""


class OptionalBuildExt(build_ext):
    """Build what can be built: a missing compiler leaves a slower package, not a failed install."""

    def finalize_options(self) -> None:
        """Compile as many modules at once as there are cores, unless told otherwise."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        """Build all extensions, or say in one line that the interpreted modules will run."""
        try:
            super().run()
        except (CCompilerError, CompileError, ExecError, LinkError, PlatformError, OSError) as error:
            print(f"kbroker: compiled modules were not built ({error}); the slower interpreted ones will run")


def compiled_modules() -> list[Extension]:
    """Return an extension for each .py with a .pxd of the same name beside it."""
    if os.environ.get("KBROKER_PURE"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    root = Path(__file__).parent
    # A set: in a source distribution the links are folders, so that a room is met twice.
    declarations = {p for room in ROOMS for p in (root / room).rglob("*.pxd")}
    sources = sorted(p.with_suffix(".py") for p in declarations if str(p.relative_to(root)) not in NOT_COMPILED)
    extensions = [
        Extension(
            ".".join(s.relative_to(root).with_suffix("").parts), [str(s.relative_to(root))], extra_compile_args=["-g0"]
        )
        for s in sources
        if s.exists()
    ]
    return cythonize(
        extensions,
        build_dir="build/cython",
        compiler_directives={"language_level": "3"},
        quiet=True,
    )


setup(ext_modules=compiled_modules(), cmdclass={"build_ext": OptionalBuildExt})
