"""Threads of Python and of C that call one module at once: every output is the right one."""

import ctypes
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_int, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest
from flat import check_flat

from neocpu.core import ROOT
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.runtime.aligned_memory import address_of
from neocpu.runtime.module import load

PYTHON, C = 32, 8
"""Threads of each."""
CALLS = 20
"""The calls of each thread in a round."""


@pytest.fixture(scope="module")
def call_from_threads(tmp_path_factory):
    """The function of ``callers.c``, which calls the library that Python has loaded."""
    path = tmp_path_factory.mktemp("callers") / "callers.so"
    source = Path(__file__).with_suffix(".c").with_name("callers.c")
    command = ["gcc", "-shared", "-fPIC", "-pthread", f"-I{ROOT}", "-o", path, source]
    subprocess.run([*command, ROOT / "libneocpu.so", f"-Wl,-rpath,{ROOT}"], check=True)
    function = ctypes.CDLL(str(path)).call_from_threads
    function.argtypes = c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_int, c_int
    return function


def test_callers_of_both_languages(small, call_from_threads, soak):
    with load(small.path, 2) as module, ThreadPoolExecutor(PYTHON + 1) as threads:
        inputs = [[*random_inputs(module.inputs, seed).values()] for seed in range(PYTHON)]
        expected = [module(x).tobytes() for x in inputs]
        model = module._calls.session._handle.address
        (x,), (size,) = inputs[0], {len(output) for output in expected}
        right = np.frombuffer(expected[0], np.uint8)

        def call(number):
            outputs = {module(inputs[number]).tobytes() for _ in range(CALLS)}
            return outputs == {expected[number]}

        def round_of_calls(_):
            c = threads.submit(
                call_from_threads, model, address_of(x), x.nbytes, address_of(right), size, C, CALLS
            )
            assert all(threads.map(call, range(PYTHON)))
            assert c.result() == 0

        together = threading.Barrier(PYTHON + 1)  # an executor starts a thread if none is idle
        list(threads.map(lambda _: together.wait(), range(PYTHON + 1)))
        soak(check_flat(round_of_calls, soak.count(3, 30_000), warmup=5))
