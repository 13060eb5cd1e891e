"""TVM's runtime libraries out of downloaded wheels, for a machine that is not this one."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Final

from neocpu.foundation.errors import TargetError
from neocpu.runtime.native import FFI_LIBRARY, RUNTIME_LIBRARY, WHEEL_LIBRARIES, NativeLibraries

_WHEEL: Final = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)-[^-]+-[^-]+-(?P<platform>.+)\.whl")


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
