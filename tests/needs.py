"""Marks that skip a test, with the reason, where the machine lacks something that it needs.

A fresh machine has Python, gcc and make, and may run the tests as an ordinary user. Whatever else a
test calls or reads is asked for here, so that no test fails for want of it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import pytest
from _pytest.mark import ParameterSet

from neocpu.foundation.errors import UsageError
from neocpu.foundation.instruction_sets import TILES, host_features
from neocpu.foundation.linker import find_linker
from neocpu.foundation.peers import PEERS, install_hint, installed
from tests import rotation

T = TypeVar("T")
CHECKOUT: Final = Path(__file__).parents[1]

#: Debian's package of each program, where it has another name.
PACKAGES: Final[Mapping[str, str]] = {
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "cc": "gcc",
    "llvm-mc": "llvm",
    "llvm-mca": "llvm",
    "objcopy": "binutils",
    "qemu-aarch64": "qemu-user",
    "qemu-aarch64-static": "qemu-user-static",
    "qemu-x86_64-static": "qemu-user-static",
    "readelf": "binutils",
}

#: A pretrained detector, which lies beside the checkout on some machines.
FACE_DETECTOR: Final = Path(__file__).parents[2] / "shared/models/face/version-RFB-320.onnx"


#: Whether to run tests that rarely find more than others, at the price of minutes.
EVERYTHING: Final = os.environ.get("NEOCPU_TESTS") == "all"


def everything() -> pytest.MarkDecorator:
    """Skip unless all tests are asked for, as `make fresh` does."""
    return pytest.mark.skipif(not EVERYTHING, reason="NEOCPU_TESTS=all and `make fresh` run it")


def one_in(count: int) -> pytest.MarkDecorator:
    """Run one of every ``count`` cases of a test, others at other commits: see `rotation`."""
    return pytest.mark.one_in(count)


def sample(cases: Sequence[T], count: int) -> Sequence[T]:
    """Return one of every ``count`` cases, others at other commits; all if all tests are run."""
    return cases if EVERYTHING else cases[first_of(count) :: count]


def first_of(count: int) -> int:
    """Return the number of the first case where one of every ``count`` is run."""
    return -rotation.offset(CHECKOUT) % count


def repeated(names: Iterable[str], families: Collection[str]) -> list[ParameterSet]:
    """Return parameters; names in ``families`` are skipped unless all tests run."""
    marks = {True: everything(), False: ()}
    return [pytest.param(name, marks=marks[name in families]) for name in names]


def programs(*names: str) -> pytest.MarkDecorator:
    """Skip where a program is not installed."""
    missing = [name for name in names if shutil.which(name) is None]
    packages = dict.fromkeys(PACKAGES.get(name, name) for name in missing)
    reason = f"needs {', '.join(missing)} (Debian: apt install {' '.join(packages)})"
    return pytest.mark.skipif(bool(missing), reason=reason)


def program(name: str) -> str:
    """Return the path of a program; skip the test that runs where it is not installed."""
    skip(programs(name))
    path = shutil.which(name)
    assert path is not None
    return path


def skip(mark: pytest.MarkDecorator) -> None:
    """Skip the test that runs if one of these marks would have."""
    if mark.args[0]:
        pytest.skip(mark.kwargs["reason"])


def engine(name: str) -> pytest.MarkDecorator:
    """Skip where an engine to compare with is not installed."""
    missing = name in PEERS and not installed(name)
    return pytest.mark.skipif(missing, reason=f"needs {name} ({install_hint(name)})")


def package(module: str, name: str) -> pytest.MarkDecorator:
    """Skip where a Python package, ``name`` to pip, is not installed."""
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"needs {module} (pip install {name})")


def linker(machine: str) -> pytest.MarkDecorator:
    """Skip where nothing links for a machine, as ``uname`` calls it."""
    lacks = ""
    try:
        find_linker(machine)
    except UsageError as error:
        lacks = str(error)
    return pytest.mark.skipif(bool(lacks), reason=lacks)


def file(path: Path) -> pytest.MarkDecorator:
    """Skip where a file that is not part of the checkout is not there."""
    return pytest.mark.skipif(not path.exists(), reason=f"{path} is not there")


def machine(name: str) -> pytest.MarkDecorator:
    """Skip on other architectures than ``name``, as ``uname`` calls it."""
    return pytest.mark.skipif(os.uname().machine != name, reason=f"needs {name}")


HAS_TILES: Final = TILES <= host_features()
"""Whether plans for this host multiply in tiles. Float32 in parts then errs by 4e-6, norm-wise."""

tiles: Final = pytest.mark.skipif(not HAS_TILES, reason="this CPU has no tile registers")


def instruction_set(name: str) -> pytest.MarkDecorator:
    """Skip where the host lacks an instruction set."""
    return pytest.mark.skipif(name not in host_features(), reason=f"this host lacks {name}")


def cpus(count: int) -> pytest.MarkDecorator:
    """Skip where fewer CPUs than ``count`` may be used."""
    return pytest.mark.skipif(len(os.sched_getaffinity(0)) < count, reason=f"needs {count} CPUs")


def ordinary_user() -> pytest.MarkDecorator:
    """Skip for the superuser, whom no permission stops."""
    return pytest.mark.skipif(os.geteuid() == 0, reason="no permission stops the superuser")
