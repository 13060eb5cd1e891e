"""TVM's two runtime libraries, for any machine: `python -m wheels.libraries MACHINE FOLDER`.

Writes ``libtvm_ffi.so``, ``libtvm_runtime.so``, ``versions.json`` and the licences into FOLDER, out
of the wheels on PyPI.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import Final

from neocpu.foundation.errors import TargetError
from neocpu.runtime.native import (
    FFI_LIBRARY,
    RUNTIME_LIBRARY,
    VERSIONS,
    WHEEL_LIBRARIES,
    NativeLibraries,
    find_libraries,
)

ROOT: Final = Path(__file__).parents[1]
SYSTEM: Final = "manylinux_2_28"
"""The oldest Linux (glibc 2.28) that both wheels are for."""
# pip takes tags literally: a wheel for an older system must be asked for by name.
_TAGS: Final = tuple(
    f"manylinux{tag}" for tag in ("_2_28", "_2_27", "_2_26", "_2_24", "_2_17", "2014")
)
_WHEEL: Final = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)-[^-]+-[^-]+-(?P<platform>.+)\.whl")


def take_installed(folder: Path) -> None:
    """Fill ``folder``, which is made if need be, with the libraries of this installation."""
    folder.mkdir(parents=True, exist_ok=True)
    found = find_libraries()
    for path in (found.ffi, found.runtime):
        shutil.copy(path, folder)
    for package in WHEEL_LIBRARIES:
        for file in importlib.metadata.files(package) or ():
            if name := licence_name(package, file):
                shutil.copy(str(file.locate()), folder / name)
    _write_versions(found, folder)


def download(machine: str, folder: Path) -> None:
    """Fill ``folder``, which is made if need be, for ``x86_64`` or ``aarch64``.

    Raises
    ------
    subprocess.CalledProcessError
        If pip cannot download a wheel; it has said why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wheels-neocpu-") as wheels:
        _pip_download(machine, Path(wheels))
        found = extract_libraries(Path(wheels), folder)
        for wheel in Path(wheels).glob("*.whl"):
            package = wheel.name.partition("-")[0].replace("_", "-")
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.namelist():
                    if name := licence_name(package, PurePosixPath(member)):
                        (folder / name).write_bytes(archive.read(member))
    _write_versions(found, folder)


def extract_libraries(folder: Path, into: Path) -> NativeLibraries:
    """Take the two libraries out of the wheels in a folder.

    Parameters
    ----------
    folder : Path
        Holds one wheel each of apache-tvm and apache-tvm-ffi, of one machine.
    into : Path
        An existing folder for the libraries.

    Raises
    ------
    TargetError
        If a wheel is missing, there are several, or one cannot be read.
    """
    matches = [match for path in folder.glob("*.whl") if (match := _WHEEL.fullmatch(path.name))]
    versions: dict[str, str] = {}
    machines: set[str] = set()
    for name, member in WHEEL_LIBRARIES.items():
        found = [match for match in matches if match["name"] == name.replace("-", "_")]
        if len(found) != 1:
            raise TargetError(f"{folder} has {len(found)} wheels of {name}, one is needed")
        versions[name] = found[0]["version"]
        machines.add("aarch64" if found[0]["platform"].endswith("_aarch64") else "x86_64")
        wheel = folder / found[0].string
        try:
            with zipfile.ZipFile(wheel) as archive:
                (into / Path(member).name).write_bytes(archive.read(member))
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise TargetError(f"cannot read {member} of {wheel}: {error}") from error
    if len(machines) > 1:
        raise TargetError(f"the wheels in {folder} are for several machines: keep those of one")
    return NativeLibraries(
        into / FFI_LIBRARY,
        into / RUNTIME_LIBRARY,
        versions["apache-tvm"],
        versions["apache-tvm-ffi"],
        machines.pop(),
    )


def licence_name(package: str, file: PurePath) -> str | None:
    """Return what a file of a wheel is called beside the libraries, or None if it is no licence.

    Some lie with the metadata, some with the modules, and what the libraries have of others, as
    libbacktrace, in folders of its own.
    """
    if not file.name.startswith(("LICENSE", "NOTICE")):
        return None
    return f"{file.name}-{file.parent.name if '3rdparty' in file.parts else package}"


def wheels_for(machine: str) -> tuple[str, ...]:
    """Return the options that make pip take wheels for Python 3.11 on a machine."""
    platforms = (word for tag in _TAGS for word in ("--platform", f"{tag}_{machine}"))
    return ("--no-deps", "--only-binary", ":all:", "--python-version", "3.11", *platforms)


def _pip_download(machine: str, wheels: Path) -> None:
    pins = _pins()
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "-q", "--dest", str(wheels)),
            *wheels_for(machine),
            *(f"{package}=={pins[package]}" for package in WHEEL_LIBRARIES),
        ],
        check=True,
    )


def _pins() -> Mapping[str, str]:
    """Return the versions of TVM's distributions that this neocpu is made for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    exact = (re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in project["dependencies"])
    return {match[1]: match[2] for match in exact if match}


def _write_versions(found: NativeLibraries, folder: Path) -> None:
    facts = {
        "machine": found.machine,
        "apache-tvm": found.tvm_version,
        "apache-tvm-ffi": found.ffi_version,
    }
    (folder / VERSIONS).write_text(json.dumps(facts) + "\n")


if __name__ == "__main__":
    download(sys.argv[1], Path(sys.argv[2]))
