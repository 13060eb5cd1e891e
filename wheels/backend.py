"""The build backend: setuptools, extended to compile the runtime's library.

Intermediate files are in a temporary folder, because setuptools would leave ``build`` and
``neocpu.egg-info`` in the checkout. The hooks for further requirements are absent: there are none,
and searching for them leaves ``neocpu.egg-info``.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from setuptools import build_meta
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

Settings = dict[str, Any] | None

CORE: Final = Path(__file__).parents[1] / "core"
LIBRARY: Final = "libneocpu.so"

_FLAGS: Final = (
    *("-std=c11", "-O2", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", "-pthread"),
    # Unwind tables, a tenth of the size, are left out: no exception passes through C.
    "-fno-asynchronous-unwind-tables",
    # Functions that only programs call are left out.
    *("-ffunction-sections", "-shared", "-Wl,--gc-sections,-s,-z,noexecstack,-soname," + LIBRARY),
)

_OPTIONS: Final = """\
[build]
build_base = {folder}/build
[egg_info]
egg_base = {folder}
"""


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    with _out_of_tree():
        return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Write a wheel that points to this checkout and return its name."""
    with _out_of_tree():
        return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    with _out_of_tree():
        return str(build_meta.build_sdist(sdist_directory, config_settings))


def compile_core(output: Path, compiler: Sequence[str]) -> None:
    """Compile the runtime's library with ``compiler``, for its target."""
    sources = sorted(map(str, CORE.glob("src/*.c")))
    command = [*compiler, *_FLAGS, f"-I{CORE}", "-o", str(output), *sources, "-lm"]
    try:
        subprocess.run(command, check=True)
    except OSError as error:
        raise SystemExit(
            f"neocpu's runtime is written in C, and {compiler[0]} cannot be run "
            f"({error.strerror}): install gcc or clang, or set CC to another compiler"
        ) from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{shlex.join(command)} failed") from error


class BuildWithCore(build_py):  # type: ignore[misc]
    """A build step that adds the library to the wheel, or to an editable checkout."""

    def run(self) -> None:
        super().run()
        folder = CORE if self.editable_mode else Path(self.build_lib) / "neocpu" / "core"
        compile_core(folder / LIBRARY, shlex.split(os.environ.get("CC", "cc")))


class LibraryWheel(bdist_wheel):  # type: ignore[misc]
    """A wheel with a C library that works with any version of Python."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


@contextmanager
def _out_of_tree() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="build-neocpu-") as folder:
        options = Path(folder) / "options.cfg"
        options.write_text(_OPTIONS.format(folder=folder))
        with patch.dict(os.environ, DIST_EXTRA_CONFIG=str(options)):
            yield
