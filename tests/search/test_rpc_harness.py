"""A library's harness on a server, tested with kernels written in C."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tvm_ffi

from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.linker import find_linker
from neocpu.search.measuring.rpc_library import compile_harness
from tests import needs

LINKER = find_linker(os.uname().machine)
KERNEL = """
#define _GNU_SOURCE
#include <stdint.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>
static DLTensor *tensor(const TVMFFIAny *value) {
  return (DLTensor *)((char *)value->v_ptr + (value->type_index == 7 ? 0 : sizeof(TVMFFIObject)));
}
/* Generated code has these variables. */
void *__TVMBackendParallelLaunch;
static int (*launch)(int (*)(int, int32_t (*)[4], void *), void *, int);
static volatile int tasks;
static int loop(int task, int32_t (*parallel)[4], void *data) {
  tasks = (*parallel)[2];
  LOOP
  return 0;
}
/* kernel(pool, weights, output): where the weights are in the pool, one element per call. */
int32_t __tvm_ffi_kernel(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
  static int calls = 0;
  if (count != 3) return -1;
  launch = __TVMBackendParallelLaunch;
  BODY
  ((float *)tensor(args + 2)->data)[calls++] =
      (char *)tensor(args + 1)->data - (char *)tensor(args)->data;
  return 0;
}
"""
PRELUDE = """
import numpy as np, os, sys, tvm_ffi
pool, output = np.zeros(1 << 10, np.float32), np.full(8, -1, np.float32)
library = tvm_ffi.load_module(sys.argv[1])
tensors = [tvm_ffi.from_dlpack(a) for a in (pool, pool, output)]
"""


def run(
    folder: Path, script: str, body: str = "", seconds: float = 10, loop: str = ""
) -> tuple[int, str]:
    """Run ``script`` with a loaded kernel that does ``body``; return exit code and output.

    Each task of the kernel's parallel loop does ``loop``.
    """
    harness = compile_harness(LINKER, 3, seconds, folder)
    source, library = folder / "kernel.c", folder / "kernel.so"
    source.write_text(KERNEL.replace("BODY", body).replace("LOOP", loop))
    include = [f"-I{tvm_ffi.libinfo.find_include_path()}"]
    include.append(f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}")
    command = [*LINKER, "-shared", "-fPIC", "-pthread", "-Wl,-Bsymbolic", "-o", str(library)]
    command += [*include, "-x", "c", str(source), "-x", "none", *map(str, harness)]
    subprocess.run(command, check=True)
    command = [sys.executable, "-c", PRELUDE + script, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.strip()


def test_each_call_reads_its_weights_at_another_place(tmp_path: Path):
    # The pool of 4096 bytes holds three of 1024 + 64.
    script = "library['run'](*tensors, 0, 1088, 0, 0, 5, 7); print(*output)"
    _, places = run(tmp_path, script)
    assert list(map(float, places.split())) == [1088, 2176, 0, 1088, 2176, -1, -1, -1]


def test_arguments_without_a_stride_stay_where_they_are(tmp_path: Path):
    assert (
        run(tmp_path, "library['run'](*tensors, 0, 0, 0, 0, 2, 0); print(*output[:3])")[1]
        == "0.0 0.0 -1.0"
    )


def test_the_seconds_are_those_of_all_calls(tmp_path: Path):
    script = "print(library['run'](*tensors, 0, 0, 0, 0, 4, 0))"
    _, seconds = run(tmp_path, script, body="usleep(20000);")
    assert 0.08 <= float(seconds) < 5


def test_filling(tmp_path: Path):
    script = (
        "library['fill'](tensors[0]); print(np.abs(pool).min(), np.abs(pool).max(), pool.std())"
    )
    least, most, deviation = map(float, run(tmp_path, script)[1].split())
    assert 1e-10 < least < most <= 1
    assert 0.5 < deviation < 0.65  # uniform: 1 / sqrt(3)


LAUNCH = "launch(loop, 0, 0);"
NAMES = """
import time
from pathlib import Path
def names():
    found = (each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm"))
    return sorted(name for name in found if name == "neocpu")
"""


@needs.cpus(2)
def test_loops_are_cut_and_distributed_as_in_artifacts(tmp_path: Path):
    # A loop of 11 iterations is a task each on the runtime's threads, of 100 some iterations each.
    body = f"{LAUNCH} ((float *)tensor(args)->data)[calls] = tasks;"
    script = f"""{NAMES}
library['run'](*tensors, 0, 0, 0, 11, 1, 1, 0)
library['run'](*tensors, 0, 0, 0, 100, 1, 1, 0)
deadline = time.monotonic() + 60  # a thread names itself once it runs
while not names() and time.monotonic() < deadline:
    time.sleep(0.01)
print(*pool[:2], len(names()))
"""
    _, printed = run(tmp_path, script, body)
    first, second, threads = map(float, printed.split())
    assert first == 11
    assert 16 <= second < 100
    assert threads == min(3, len(os.sched_getaffinity(0))) - 1


def test_threads_end_on_request_and_start_again(tmp_path: Path):
    script = f"""{NAMES}
for _ in range(3):
    library['run'](*tensors, 0, 0, 0, 11, 1, 1, 0)
    library['end']()
print(names())
"""
    assert run(tmp_path, script, LAUNCH) == (0, "[]")


@pytest.mark.parametrize("body", ["*(volatile int *)0 = 1;", "__builtin_trap();"])
def test_a_crash_of_any_thread_ends_the_process_as_if_it_were_done(tmp_path: Path, body: str):
    script = "library['run'](*tensors, 0, 0, 0, 11, 1, 1, 0); print('survived')"
    # The calling thread leaves the crash to others.
    loop = f"if (getpid() != gettid()) {{ {body} }} usleep(100000);"
    outcome = run(tmp_path, script, LAUNCH, loop=loop)
    alone = len(os.sched_getaffinity(0)) == 1
    assert outcome == ((0, "survived") if alone else (0, ""))


@pytest.mark.parametrize(
    "body", ["*(volatile int *)0 = 1;", "__builtin_trap();", "for (;;) pause();"]
)
def test_a_crash_or_hang_ends_the_process_as_if_it_were_done(tmp_path: Path, body: str):
    script = "library['run'](*tensors, 0, 0, 0, 0, 1, 0); print('survived')"
    assert run(tmp_path, script, body, seconds=1) == (0, "")


def test_a_compiler_that_fails(tmp_path: Path):
    with pytest.raises(NeoCPUError, match="'false' failed: no message") as caught:
        compile_harness(("false",), 1, 1, tmp_path)
    assert "\n" not in str(caught.value)
