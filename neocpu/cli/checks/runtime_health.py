"""The checks of ``neocpu doctor`` for installations that only run models."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import neocpu
from neocpu.foundation.errors import NeoCPUError, dependency_error

MINIMUM_PYTHON: Final = (3, 10)  # oldest version that runs models; the compiler needs a newer one

# Instruction sets that are named if the CPU has them, those of the widest vectors first.
_NOTABLE: Final = (
    "avx512f",
    "avx512vnni",
    "avx2",
    "fma",
    "sse4.2",
    "sve2",
    "sve",
    "dotprod",
    "fullfp16",
    "neon",
)


def python_version(minimum: tuple[int, int] = MINIMUM_PYTHON) -> Iterator[Finding]:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= minimum:
        yield Finding("python", "ok", f"{found}, {sys.executable}")
    else:
        wanted = ".".join(map(str, minimum))
        yield Finding("python", "failed", found, f"use Python {wanted} or newer")


def version() -> Iterator[Finding]:
    yield Finding("neocpu-runtime", "ok", neocpu.__version__)


def runtime_library() -> Iterator[Finding]:
    """Check that the library that runs models is there, for this machine, and can be loaded."""
    from neocpu.core import LIBRARY
    from neocpu.runtime.binding import library

    library()
    yield Finding("runtime library", "ok", str(LIBRARY))


def instruction_sets() -> Iterator[Finding]:
    """Yield the instruction sets of the CPU that matter to compiled models."""
    from neocpu.foundation.instruction_sets import host_features

    features = host_features()
    named = [feature for feature in _NOTABLE if feature in features]
    yield Finding("CPU", "ok", f"{os.uname().machine} with {', '.join(named) or 'no vectors'}")


def threads() -> Iterator[Finding]:
    """Yield the number of CPUs that the process may use, and why it may not use more."""
    from neocpu.foundation.host import usable_cpus

    usable, allowed, present = usable_cpus(), len(os.sched_getaffinity(0)), os.cpu_count()
    why = f"affinity allows {allowed} of {present} CPUs"
    if usable < allowed:
        why += f", the control group's quota {usable}"
    yield Finding("threads", "ok", f"{usable} by default: {why}")


CHECKS: Final[tuple[Check, ...]] = (
    python_version,
    version,
    runtime_library,
    instruction_sets,
    threads,
)


def guarded() -> Iterator[Finding]:
    """Yield a warning: without the compiler there are no kernels to test."""
    yield Finding(
        "guarded kernels",
        "warning",
        "not tested: that compiles small networks",
        "pip install neocpu, or set NEOCPU_GUARD=1 where you run your own models",
    )


SELF_TESTS: Final[tuple[Check, ...]] = (guarded,)


Status: TypeAlias = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    name: str  # name of the thing that was checked
    status: Status  # ``ok``, ``warning`` (neocpu works), or ``failed`` (it does not)
    detail: str  # result of the check
    fix: str = ""  # advice on a warning or a failure


Check: TypeAlias = Callable[[], Iterator[Finding]]


def examine(checks: Sequence[Check]) -> Iterator[Finding]:
    """Run all checks in order; one that raises yields a failed finding."""
    for check in checks:
        name = check.__name__.replace("_", " ")
        try:
            yield from check()
        except NeoCPUError as error:
            yield Finding(name, "failed", str(error))
        except Exception as error:
            what = dependency_error(error) or f"{type(error).__name__}: {last_line(str(error))}"
            yield Finding(name, "failed", str(what))


def last_line(text: str) -> str:
    """Return the last line of a text that is not blank."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
