"""The checks ``neocpu doctor`` makes where models are only run: all that running one needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final

import neocpu
from neocpu.cli.checks.doctor_findings import Check, Finding

MINIMUM_PYTHON: Final = (3, 11)

# Named, if the CPU has them, from the widest vectors on.
_NOTABLE: Final = (
    *("avx512f", "avx512vnni", "avx2", "fma", "sse4.2"),
    *("sve2", "sve", "dotprod", "fullfp16", "neon"),
)


def python_version() -> Iterator[Finding]:
    """The interpreter is new enough."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= MINIMUM_PYTHON:
        yield Finding("python", "ok", f"{found}, {sys.executable}")
    else:
        wanted = ".".join(map(str, MINIMUM_PYTHON))
        yield Finding("python", "failed", found, f"use Python {wanted} or newer")


def version() -> Iterator[Finding]:
    """Which neocpu this is."""
    yield Finding("neocpu-runtime", "ok", neocpu.__version__)


def libraries() -> Iterator[Finding]:
    """TVM's two libraries are there, for this machine, and can be loaded."""
    from neocpu.runtime.ffi import runtime
    from neocpu.runtime.native import find_libraries

    found = find_libraries()
    runtime()
    detail = f"TVM {found.tvm_version}, ffi {found.ffi_version}, in {found.runtime.parent}"
    yield Finding("runtime libraries", "ok", detail)


def instruction_sets() -> Iterator[Finding]:
    """What the CPU offers compiled models."""
    from neocpu.foundation.instruction_sets import host_features

    features = host_features()
    named = [feature for feature in _NOTABLE if feature in features]
    yield Finding("CPU", "ok", f"{os.uname().machine} with {', '.join(named) or 'no vectors'}")


def threads() -> Iterator[Finding]:
    """How many CPUs the process may use, and why not more."""
    from neocpu.foundation.host import usable_cpus

    usable, allowed, present = usable_cpus(), len(os.sched_getaffinity(0)), os.cpu_count()
    why = f"affinity allows {allowed} of {present} CPUs"
    if usable < allowed:
        why += f", the control group's quota {usable}"
    yield Finding("threads", "ok", f"{usable} by default: {why}")


CHECKS: Final[tuple[Check, ...]] = (
    python_version,
    version,
    libraries,
    instruction_sets,
    threads,
)


def guarded() -> Iterator[Finding]:
    """There is nothing to run: kernels are compiled for it."""
    yield Finding(
        "guarded kernels",
        "warning",
        "not tested: that compiles small networks",
        "pip install neocpu, or set NEOCPU_GUARD=1 where you run your own models",
    )


SELF_TESTS: Final[tuple[Check, ...]] = (guarded,)
