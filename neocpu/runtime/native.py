"""Find TVM's two runtime libraries, without importing TVM."""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.foundation.errors import TargetError

FFI_LIBRARY: Final = "libtvm_ffi.so"
RUNTIME_LIBRARY: Final = "libtvm_runtime.so"
WHEEL_LIBRARIES: Final = {
    "apache-tvm": f"tvm/lib/{RUNTIME_LIBRARY}",
    "apache-tvm-ffi": f"tvm_ffi/lib/{FFI_LIBRARY}",
}
"""Which library each of TVM's distributions brings, and where below site-packages."""

VERSIONS: Final = "versions.json"
"""Beside libraries that lie in a folder of their own: their machine and versions."""

BUNDLED: Final = Path(__file__).parent / "lib"
"""Where the ``neocpu-runtime`` distribution has them."""


@dataclass(frozen=True, slots=True)
class NativeLibraries:
    """TVM's runtime as two shared libraries: the second needs the first.

    Attributes
    ----------
    ffi, runtime : Path
        ``libtvm_ffi.so`` and ``libtvm_runtime.so``.
    tvm_version, ffi_version : str
        Of apache-tvm and apache-tvm-ffi.
    machine : str
        ``x86_64`` or ``aarch64``.
    """

    ffi: Path
    runtime: Path
    tvm_version: str
    ffi_version: str
    machine: str


def find_libraries() -> NativeLibraries:
    """Return the installed libraries: those of TVM's wheels, else those of ``neocpu-runtime``.

    Raises
    ------
    TargetError
        If neither is installed, or only for another machine.
    """
    if (installed := _of_wheels()) is not None:
        return installed
    if not (BUNDLED / VERSIONS).exists():
        raise TargetError(
            "TVM's runtime libraries are not installed here: pip install neocpu, "
            "or neocpu-runtime to run compiled models only"
        )
    bundled = read_libraries(BUNDLED)
    if bundled.machine != os.uname().machine:
        raise TargetError(
            f"the runtime libraries in {BUNDLED} are for {bundled.machine}, this host is "
            f"{os.uname().machine}: install the neocpu-runtime wheel for this machine"
        )
    return bundled


def read_libraries(folder: str | os.PathLike[str]) -> NativeLibraries:
    """Return the libraries, of any machine, in a folder that also has `VERSIONS`.

    Raises
    ------
    TargetError
        If a file is missing, or the versions cannot be read.
    """
    folder = Path(folder)
    ffi, runtime = folder / FFI_LIBRARY, folder / RUNTIME_LIBRARY
    if missing := [path.name for path in (ffi, runtime) if not path.is_file()]:
        raise TargetError(
            f"{folder} has no {' and no '.join(missing)}: name a folder with {FFI_LIBRARY}, "
            f"{RUNTIME_LIBRARY} and {VERSIONS}"
        )
    try:
        facts = json.loads((folder / VERSIONS).read_bytes())
        versions = (facts["apache-tvm"], facts["apache-tvm-ffi"], facts["machine"])
        if not all(isinstance(fact, str) for fact in versions):
            raise TypeError("every value must be a string")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TargetError(
            f"cannot read {folder / VERSIONS} ({error!r}): it must hold "
            '{"machine": …, "apache-tvm": …, "apache-tvm-ffi": …}'
        ) from error
    return NativeLibraries(ffi, runtime, *versions)


def _of_wheels() -> NativeLibraries | None:
    """Return the libraries of installed wheels, if both are there."""
    tvm, ffi = _package("tvm"), _package("tvm_ffi")
    if tvm is None or ffi is None:
        return None
    libraries = ffi / "lib" / FFI_LIBRARY, tvm / "lib" / RUNTIME_LIBRARY
    if not all(path.is_file() for path in libraries):
        return None
    return NativeLibraries(
        *libraries,
        _version(tvm, "apache-tvm"),
        _version(ffi, "apache-tvm-ffi"),
        os.uname().machine,
    )


def _package(name: str) -> Path | None:
    """Return the folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(locations))) if locations else None


def _version(package: Path, distribution: str) -> str:
    """Return the version of an installed distribution.

    The folder that installers leave beside the package says it in its name. Python's own way to
    ask takes 25 ms, most of it to import a parser of e-mail; it is for unusual installations.
    """
    prefix, suffix = distribution.replace("-", "_") + "-", ".dist-info"
    names = [
        name
        for name in os.listdir(package.parent)
        if name.startswith(prefix) and name.endswith(suffix)
    ]
    if len(names) == 1:
        return names[0][len(prefix) : -len(suffix)]
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
