"""Load an artifact's code into this process, next to TVM's runtime but without TVM's compiler."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable
from typing import Final

from neocpu.foundation.errors import ArtifactError
from neocpu.runtime.artifact import Artifact
from neocpu.runtime.artifact_file.header import ArtifactHeader
from neocpu.runtime.ffi import Ffi, FfiError, Object, runtime
from neocpu.runtime.native import NativeLibraries


class Library:
    """The loaded code of one artifact, shared by the modules of this process that run it."""

    __slots__ = ("__weakref__", "executable", "ffi")

    def __init__(self, ffi: Ffi, executable: Object) -> None:
        self.ffi = ffi
        self.executable = executable


class _Loaded:
    """What is loaded in this process.

    The dynamic loader's own table is process-wide and keyed by inode, so this one is too: loading
    the same file twice would make both copies share one "current module" pointer inside the
    library.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: in a child, whose parent's other threads may have held the lock.

        There the parent's modules are of no use, so that what they loaded is never called.
        """
        self.lock = threading.Lock()
        self.libraries: weakref.WeakValueDictionary[Hashable, Library] = (
            weakref.WeakValueDictionary()
        )


_loaded: Final = _Loaded()
os.register_at_fork(after_in_child=_loaded.forget)


def open_library(artifact: Artifact) -> Library:
    """Load the code of a checked artifact, or share it if it is loaded already.

    Raises
    ------
    ArtifactError
        If TVM's runtime is not the one the artifact was compiled for, or loading fails.
    TargetError
        If TVM's runtime is not installed.
    """
    try:
        ffi = runtime()
        check_versions(artifact, ffi.libraries)
        with _loaded.lock:
            library = _loaded.libraries.get(artifact.identity)
            if library is None:
                library = Library(ffi, ffi.load_module(artifact.library_path()))
                _loaded.libraries[artifact.identity] = library
            return library
    except (OSError, FfiError) as error:
        raise ArtifactError(f"cannot load the code of {artifact.path}: {error}") from error


def check_versions(artifact: Artifact, libraries: NativeLibraries) -> None:
    """Check that the installed TVM runtime is the one the artifact's code and bytecode expect.

    Raises
    ------
    ArtifactError
        Naming both versions.
    """
    if (other := other_version(artifact.header, libraries)) is not None:
        package, wanted, found = other
        raise ArtifactError(
            f"{artifact.path} was compiled with {package} {wanted}, installed is {found}: "
            f"compile the model again, or pip install {package}=={wanted}"
        )


def other_version(
    header: ArtifactHeader, libraries: NativeLibraries
) -> tuple[str, str, str] | None:
    """Return the first package whose version is not the artifact's: its name, wanted, found."""
    for package, wanted, found in (
        ("apache-tvm", header.tvm_version, libraries.tvm_version),
        ("apache-tvm-ffi", header.ffi_version, libraries.ffi_version),
    ):
        if found != wanted:
            return package, wanted, found
    return None
