"""Build the distribution ``neocpu-runtime``: `python -m wheels.runtime [PLATFORM] [--cc COMMAND]`.

It contains the modules for running, inspecting, serving and bundling compiled models, with
everything that they import, and the runtime's library for PLATFORM. That is a machine, by default
this one, or a wheel tag such as ``musllinux_1_2_aarch64``. The wheel is written to ``dist``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import json
import lzma
import os
import re
import shutil
import string
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from neocpu import core
from wheels.backend import LIBRARY
from wheels.imports import Closure, closure
from wheels.platforms import compile_library

ROOT: Final = Path(__file__).parents[1]
HERE: Final = Path(__file__).parent
DIST: Final = ROOT / "dist"

PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS: Final[Mapping[str, Path]] = {
    package: ROOT / folder
    for package, folder in PROJECT["tool"]["setuptools"]["package-dir"].items()
}

WHOLE: Final = ("neocpu.runtime", "neocpu.serving")
"""Packages that are shipped with all their modules."""
COMMANDS: Final = ("run", "inspect", "serve", "bundle", "doctor", "completion")
"""Commands of ``neocpu`` that need no compiler."""
BY_NAME: Final = ("neocpu.__main__", "neocpu.batch", "neocpu.cli.checks.runtime_health")
"""Modules that no statement imports."""
CLI: Final = ("click", "rich")
"""The packages of the command line, an extra of this distribution."""


def shipped() -> Closure:
    """Return the modules of the distribution, and the other packages that they import."""
    commands = (f"neocpu.cli.{command}" for command in COMMANDS)
    whole = (module for package in WHOLE for module in _modules(package))
    return closure((*BY_NAME, *commands, *whole), FOLDERS)


def _modules(package: str) -> Iterator[str]:
    """Yield a package of the folder ``neocpu`` and its modules."""
    folder = FOLDERS["neocpu"]
    for path in folder.joinpath(*package.split(".")[1:]).rglob("*.py"):
        inner = path.relative_to(folder.parent).with_suffix("").parts
        yield ".".join(inner).removesuffix(".__init__")


def requirements() -> Mapping[str, list[str]]:
    """Return neocpu's requirements: ``dependencies``, and those of each extra."""
    project = PROJECT["project"]
    lines = {re.split(r"[^\w-]", line)[0]: line for line in project["dependencies"]}
    extras = project["optional-dependencies"]
    cli = [lines[name] for name in CLI]
    return {
        "dependencies": [lines["numpy"]],
        "cli": cli,
        "serve": [*cli, *extras["serve"]],
        "images": list(extras["images"]),
        "mlserver": list(extras["mlserver"]),
        "ray": list(extras["ray"]),
    }


def build(platform: str, dist: Path, stage: Path, compiler: str | None = None) -> Path:
    """Write the wheel for a platform or machine into ``dist`` and return its path."""
    shutil.rmtree(stage, ignore_errors=True)
    package = stage / "src"
    found = shipped()
    for name, path in found.modules.items():
        _copy(path, package, _place(name, path))
    for path, place in _data(found):
        _copy(path, package, place)
    _pack(core.sources(), package / "neocpu" / "core" / core.ARCHIVE)
    tag = compile_library(platform, package / "neocpu" / "core" / LIBRARY, compiler)
    for path in (ROOT / "LICENSE", HERE / "README.md", HERE / "setup.py"):
        shutil.copy(path, stage)
    (stage / "pyproject.toml").write_text(_project_file(package))
    dist.mkdir(exist_ok=True)
    # The build is not isolated, so nothing is downloaded: this environment has setuptools.
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"),
            *("--config-settings", f"--build-option=--plat-name={tag}"),
            *("--wheel-dir", str(dist), str(stage)),
        ],
        check=True,
    )
    (wheel,) = dist.glob(f"neocpu_runtime-{PROJECT['project']['version']}-*-{tag}.whl")
    return wheel


def _pack(sources: Mapping[str, bytes], archive: Path) -> None:
    """Write files into an archive that is reproducible byte by byte."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as file:
        for name in sorted(sources):
            member = tarfile.TarInfo(name)
            member.size = len(sources[name])
            file.addfile(member, io.BytesIO(sources[name]))
    archive.write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def _place(name: str, path: Path) -> Path:
    inner = Path(*name.split("."))
    return inner / "__init__.py" if path.name == "__init__.py" else inner.with_suffix(".py")


def _data(found: Closure) -> Iterator[tuple[Path, Path]]:
    """Yield data files of the shipped packages, without C sources, and their destinations."""
    for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items():
        if package in found.modules and package != core.__name__:
            folder = found.modules[package].parent
            for path in (path for pattern in patterns for path in folder.glob(pattern)):
                if path.is_file():
                    yield path, Path(*package.split(".")) / path.relative_to(folder)


def _project_file(package: Path) -> str:
    """Return the text of ``pyproject.toml``; a JSON list of strings is valid TOML."""
    folders = {path.parent.relative_to(package) for path in package.rglob("__init__.py")}
    lists = {"packages": sorted(".".join(folder.parts) for folder in folders), **requirements()}
    return string.Template((HERE / "runtime.toml").read_text()).substitute(
        version=PROJECT["project"]["version"],
        **{name: json.dumps(values) for name, values in lists.items()},
    )


def _copy(path: Path, folder: Path, place: Path) -> None:
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, folder / place)


def _describe(wheel: Path) -> str:
    """Return the wheel's size, installed and packed, beside that of the numpy it needs."""
    with zipfile.ZipFile(wheel) as archive:
        installed = sum(member.file_size for member in archive.infolist())
    numpy = importlib.metadata.distribution("numpy")
    files = (file.locate() for file in numpy.files or () if file.suffix != ".pyc")
    beside = sum(os.path.getsize(path) for path in files if os.path.exists(path))
    return (
        f"{wheel}: {wheel.stat().st_size / 1e6:.2f} MB, installed {installed / 1e6:.2f} MB "
        f"(numpy {numpy.version} besides: {beside / 1e6:.1f} MB)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m wheels.runtime")
    parser.add_argument("platform", nargs="?", default=os.uname().machine)
    parser.add_argument("--cc", help="a C compiler for the platform, with its options")
    asked = parser.parse_args()
    stage = ROOT / "build" / "runtime-wheel" / asked.platform
    print(_describe(build(asked.platform, DIST, stage, asked.cc)))


if __name__ == "__main__":
    main()
