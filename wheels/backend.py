"""The build backend: setuptools, with what it makes on the way in a temporary folder.

On its own it leaves ``build`` and ``neocpu.egg-info`` in the checkout. Its hooks for further
requirements are not here: there are none, and looking for them leaves ``neocpu.egg-info``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from setuptools import build_meta

Settings = dict[str, Any] | None

_OPTIONS: Final = """\
[build]
build_base = {folder}/build
[egg_info]
egg_base = {folder}
"""


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Write the wheel and return its name."""
    with _out_of_tree():
        return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Write a wheel that leads to this checkout and return its name."""
    with _out_of_tree():
        return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Write the archive of sources and return its name."""
    with _out_of_tree():
        return str(build_meta.build_sdist(sdist_directory, config_settings))


@contextmanager
def _out_of_tree() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="build-neocpu-") as folder:
        options = Path(folder) / "options.cfg"
        options.write_text(_OPTIONS.format(folder=folder))
        with patch.dict(os.environ, DIST_EXTRA_CONFIG=str(options)):
            yield
