"""Machine code that one test generated, for the others that compile the same kernels.

Tests compile the same few small networks over and over, in children that leave object files: equal
functions for an equal target are generated once in a run of the tests, by whichever worker of
pytest-xdist comes first. Everything before and after, children and linking too, happens each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tvm

from neocpu.building import parallel_codegen


@dataclass(frozen=True)
class SharedCode:
    """Stands for `parallel_codegen._generate`: what it makes of a module is read from a file."""

    generate: Callable[[Any, Any], Any]
    folder: Path

    def __call__(self, mod: Any, target: Any) -> _Code:
        return _Code(self, mod, target)


@dataclass(frozen=True)
class _Code:
    shared: SharedCode
    mod: Any
    target: Any

    def write_to_file(self, path: str) -> None:
        kept = self.shared.folder / f"{self._key()}.o"
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(kept, path)
            return
        self.shared.generate(self.mod, self.target).write_to_file(path)
        mine = kept.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):  # another worker ended, and took the folder
            shutil.copyfile(path, mine)
            mine.replace(kept)

    def inspect_source(self, kind: str) -> str:
        return str(self.shared.generate(self.mod, self.target).inspect_source(kind))

    def _key(self) -> str:
        text = tvm.ir.save_json(self.mod) + str(self.target)
        return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def sharing_code(folder: Path) -> Iterator[None]:
    """Share the code of all kernels that are compiled in this process, by way of a folder."""
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        shared = SharedCode(parallel_codegen._generate, folder)
        patch.setattr(parallel_codegen, "_generate", shared)
        yield
    shutil.rmtree(folder, ignore_errors=True)
