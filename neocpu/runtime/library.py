"""Load an artifact's code into this process, next to TVM's runtime but without TVM's compiler."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import itertools
import os
import threading
import weakref
from pathlib import Path
from typing import Any, Final

from neocpu.runtime.artifact import Artifact
from neocpu.schedules.errors import ArtifactError


class Library:
    """The loaded code of one artifact, shared by the modules of this process that run it."""

    __slots__ = ("__weakref__", "executable")

    def __init__(self, executable: Any) -> None:
        self.executable = executable


# The dynamic loader's own table is process-wide and keyed by inode, so this one is too: loading the
# same file twice would make both copies share one "current module" pointer inside the library.
_loaded: Final[weakref.WeakValueDictionary[tuple[int, int], Library]] = (
    weakref.WeakValueDictionary()
)
_loaded_lock: Final = threading.Lock()
_aliases: Final = itertools.count(1)


def open_library(artifact: Artifact) -> Library:
    """Load the code of a checked artifact, or share it if it is loaded already.

    Raises
    ------
    ArtifactError
        If TVM's runtime is not the one the artifact was compiled for, or loading fails.
    """
    check_versions(artifact)
    import tvm_ffi  # here, because `neocpu.load` must refuse a bad file before importing anything

    stat = os.fstat(artifact.fd)
    key = (stat.st_dev, stat.st_ino)
    with _loaded_lock:
        if (library := _loaded.get(key)) is not None:
            return library
        try:
            ctypes.CDLL(str(_runtime_path()), mode=ctypes.RTLD_GLOBAL)
            load = tvm_ffi.get_global_func("ffi.Module.load_from_file.so")
            library = Library(load(_alias(artifact.fd), "so"))
        except (OSError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise ArtifactError(f"cannot load the code of {artifact.path}: {reason}") from error
        _loaded[key] = library
        return library


def check_versions(artifact: Artifact) -> None:
    """Check that the installed TVM runtime is the one the artifact's code and bytecode expect.

    Raises
    ------
    ArtifactError
        Naming both versions.
    """
    header = artifact.header
    for package, wanted in (
        ("apache-tvm", header.tvm_version),
        ("apache-tvm-ffi", header.ffi_version),
    ):
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found = "none"
        if found != wanted:
            raise ArtifactError(
                f"{artifact.path} was compiled with {package} {wanted}, installed is {found}: "
                f"compile the model again, or pip install {package}=={wanted}"
            )


def _runtime_path() -> Path:
    """Return the path of TVM's runtime library, found without importing ``tvm``."""
    spec = importlib.util.find_spec("tvm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations))) / "lib" / "libtvm_runtime.so"


def _alias(fd: int) -> str:
    """Return a path of an open file that this process never used before.

    The descriptor makes it the very file whose digest was checked. The loader compares paths before
    inodes: given one it has seen, it would return the old code of a file that was since replaced.
    So each path spells a new number in redundant ``/`` and ``./``.
    """
    spelling = f"{next(_aliases):b}".replace("1", "./").replace("0", "/")
    return f"/proc/self/fd/{spelling}{fd}"
