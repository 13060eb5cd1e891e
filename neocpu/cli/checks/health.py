"""The checks of ``neocpu doctor`` for installations with the compiler. They change nothing."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from types import MappingProxyType
from typing import Final

from neocpu.cli.checks.runtime_health import Check, Finding, last_line, runtime_library, threads
from neocpu.cli.checks.runtime_health import python_version as least_python
from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.pinned_packages import pinned
from neocpu.foundation.python_child import module_command
from neocpu.runtime.guarding import GUARD_VARIABLE

MINIMUM_PYTHON: Final = (3, 11)
CHILD_TIMEOUT: Final = 120.0
SELF_TEST_TIMEOUT: Final = 600.0
_SELF_TEST: Final = "neocpu.cli.checks.self_test"


def python_version() -> Iterator[Finding]:
    yield from least_python(MINIMUM_PYTHON)


def pinned_versions() -> Iterator[Finding]:
    """Check that the pinned libraries have exactly the versions that this neocpu needs."""
    yield Finding("neocpu", "ok", metadata.version("neocpu"))
    for package, wanted in pinned():
        fix = f"pip install {package}=={wanted}"
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            yield Finding(package, "failed", "not installed", fix)
            continue
        if found == wanted:
            yield Finding(package, "ok", found)
        else:
            yield Finding(package, "failed", f"{found} instead of {wanted}", fix)


def packages() -> Iterator[Finding]:
    from neocpu.foundation.requirements import find_misfits, mended

    exact = {package for package, _ in pinned()}
    misfits = [misfit for misfit in find_misfits() if misfit.package not in exact]
    for misfit in misfits:
        what, _, fix = mended([misfit]).partition(": ")
        yield Finding(misfit.package, "failed", what, fix)
    if not misfits:
        yield Finding("other packages", "ok", "all are installed, in versions that fit")


def onnx() -> Iterator[Finding]:
    """Check that models can be read: importing onnx fails if protobuf is too old for it."""
    import google.protobuf
    import onnx

    yield Finding("onnx", "ok", f"{onnx.__version__}, with protobuf {google.protobuf.__version__}")


def ffi() -> Iterator[Finding]:
    """Check that TVM and its foreign function interface agree on the layout of objects."""
    pins = " ".join(f"{package}=={wanted}" for package, wanted in pinned())
    yield _child(
        "ffi self-test", "ffi", f"most likely the wrong apache-tvm-ffi: pip install {pins}"
    )


def linker() -> Iterator[Finding]:
    """Check that there is a C++ compiler to link artifacts with."""
    from neocpu.foundation.linker import find_linker

    command = find_linker(os.uname().machine)
    done = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, check=False, timeout=CHILD_TIMEOUT
    )
    version = done.stdout.splitlines()[0] if done.stdout else "of unknown version"
    yield Finding("C++ compiler", "ok", f"{command[0]}: {version}")


def cpu() -> Iterator[Finding]:
    """Check that the CPU has vector instructions worth compiling for."""
    from neocpu.schedules.vocabulary.target_parsing import host_target

    host = host_target()
    caches = ", ".join(
        f"{name} {size >> 10} KiB"
        for name, size in (("L1d", host.l1d), ("L2", host.l2), ("L3 share", host.l3))
    )
    detail = f"{host.mcpu}, {host.isa} of {host.vector_bytes * 8} bits, {caches}"
    if host.isa == "sse":
        yield Finding("CPU", "warning", detail, "without AVX2 and FMA, compiled code is slow")
    else:
        yield Finding("CPU", "ok", detail)


def databases() -> Iterator[Finding]:
    from neocpu.schedules.registry import template_version
    from neocpu.tuning_db.store import Store, default_database, shipped_databases

    own = default_database()
    places = [("shipped", path) for path in shipped_databases()] + [("your own", own)]
    for title, path in places:
        name = f"tuning database, {title}"
        if not path.exists():
            yield Finding(name, "ok", f"{path}, not made yet")
            continue
        try:
            store = Store.open([path], None, template_version)
        except NeoCPUError as error:
            yield Finding(name, "failed", str(error))
            continue
        detail = f"{path}, {len(store)} usable records"
        if store.skipped:
            first = store.skipped[0]
            detail += f", {len(store.skipped)} lines skipped (line {first.line}: {first.reason})"
            yield Finding(name, "warning", detail, "'neocpu db prune' drops damaged lines")
        else:
            yield Finding(name, "ok", detail)


def kept_code() -> Iterator[Finding]:
    """Check that machine code can be kept for the next compilation."""
    from neocpu.building.object_cache import FOLDER_VARIABLE, LIMIT, object_files

    files = object_files()
    if files is None:
        yield Finding("kept machine code", "ok", "none: turned off, or no home to keep it in")
        return
    if (obstacle := files.obstacle()) is not None:
        fix = f"fix that, or set {FOLDER_VARIABLE} to another folder, or to 'off'"
        yield Finding("kept machine code", "warning", f"{files.folder}: {obstacle}", fix)
        return
    count, size = files.size()
    detail = f"{files.folder}, {count} kernels, {size / 1e6:.1f} of at most {LIMIT / 1e6:.0f} MB"
    yield Finding("kept machine code", "ok", f"{detail}; delete it at any time")


def smoke() -> Iterator[Finding]:
    command = shlex.join(module_command(_SELF_TEST, "smoke"))
    yield _child("smoke test", "smoke", f"fix the failures above; for details run: {command}")


def guarded() -> Iterator[Finding]:
    """Check that no kernel accesses memory outside its tensors."""
    command = f"{GUARD_VARIABLE}=1 {shlex.join(module_command(_SELF_TEST, 'guard'))}"
    fix = f"a defect of neocpu: please report it, with the output of {command}"
    environment = {GUARD_VARIABLE: "1"}
    yield _child("guarded kernels", "guard", fix, environment, SELF_TEST_TIMEOUT)


SELF_TESTS: Final[tuple[Check, ...]] = (guarded,)  # longer ones, on request

CHECKS: Final[tuple[Check, ...]] = (
    python_version,
    pinned_versions,
    packages,
    onnx,
    runtime_library,
    ffi,
    linker,
    cpu,
    threads,
    databases,
    kept_code,
    smoke,
)


def _child(
    name: str,
    test: str,
    fix: str,
    environment: Mapping[str, str] = MappingProxyType({}),
    timeout: float = CHILD_TIMEOUT,
) -> Finding:
    try:
        done = subprocess.run(
            module_command(_SELF_TEST, test),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={**os.environ, **environment},
        )
    except subprocess.TimeoutExpired:
        return Finding(name, "failed", f"no answer within {timeout:.0f} s", fix)
    if done.returncode == 0:
        return Finding(name, "ok", last_line(done.stdout))
    if done.returncode < 0:
        crash = f"crashed: {_signal_name(-done.returncode)}"
        kernel = re.search(r" in (kernel .*)", done.stderr)  # the wording of `guard.py`
        return Finding(name, "failed", f"{crash}, {kernel[1]}" if kernel else crash, fix)
    return Finding(name, "failed", last_line(done.stderr), fix)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
