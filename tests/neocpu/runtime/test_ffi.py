"""The binding to TVM's C interface."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

from neocpu.runtime.aligned_memory import address_of, aligned_empty
from neocpu.runtime.ffi import FfiError, Object, runtime
from neocpu.runtime.ffi_values import DLTensor


@pytest.fixture(scope="module")
def ffi():
    return runtime()


def count(thing: Object) -> int:
    """Strong references to an object, as TVM counts them."""
    import ctypes

    return ctypes.c_uint32.from_address(thing.handle).value


def tensor_of(ffi, array):
    return ffi.tensor(address_of(array), array.dtype, array.shape)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4)])
def test_a_tensor_describes_an_array(ffi, dtype, shape):
    array = aligned_empty(shape, dtype)
    array[...] = 1
    content = tensor_of(ffi, array).content
    assert content.shape == shape
    assert content.address == address_of(array)
    view = content.array()
    assert view.dtype == array.dtype
    np.testing.assert_array_equal(view, array)


def test_tvm_agrees_with_the_description(ffi):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    seen = []
    tvm_ffi.register_global_func("neocpu.test.see", lambda t: seen.append(t), override=True)
    ffi.function("neocpu.test.see")(tensor_of(ffi, array))
    np.testing.assert_array_equal(np.from_dlpack(seen[0]), array)
    assert seen[0].shape == (2, 3, 4)
    assert str(seen[0].dtype) == "float32"
    seen.clear()


def test_errors_carry_the_library_s_message(ffi):
    with pytest.raises(FfiError, match=r"/no/such/file\.so"):
        ffi.load_module("/no/such/file.so")
    with pytest.raises(FfiError, match="no function 'no such function'"):
        ffi.function("no such function")


def test_callbacks_get_what_is_passed(ffi):
    seen = []
    array = np.arange(6, dtype=np.int64)

    def note(*arguments):
        seen.extend(one.array().copy() if isinstance(one, DLTensor) else one for one in arguments)

    long = "a string that does not fit into a value"
    ffi.callback(note)(3, "short", long, tensor_of(ffi, array), ffi.function("ffi.Array")())
    assert seen[:3] == [3, "short", long]
    np.testing.assert_array_equal(seen[3], array)
    assert seen[4] is None


def test_an_error_in_a_callback_reaches_the_caller(ffi):
    def fail():
        raise ValueError("on purpose")

    with pytest.raises(FfiError, match=r"ValueError\('on purpose'\)"):
        ffi.callback(fail)()


def test_references_are_given_back(ffi):
    strings = ffi.function("ffi.Array")
    before = count(strings)
    held = tensor_of(ffi, np.zeros(3, np.float32))
    assert count(held) == 1
    arrays = [strings(held, held) for _ in range(5)]
    assert count(held) == 11
    del arrays
    gc.collect()
    assert count(held) == 1
    assert count(strings) == before


def test_ten_thousand_calls_leave_nothing_behind(linear):
    """Neither references nor memory: every call makes a tensor and gives it back."""
    from neocpu.runtime.artifact import open_artifact
    from neocpu.runtime.library import open_library
    from neocpu.runtime.session import Session
    from neocpu.runtime.thread_pool import ThreadPool

    with open_artifact(linear.path) as artifact, ThreadPool(1) as pool:
        session = Session(artifact, open_library(artifact), hugepages=False)
        inputs = linear.inputs()

        def run(times):
            for _ in range(times):
                session.run(inputs)

        pool.call(lambda: run(2000))
        page = os.sysconf("SC_PAGE_SIZE")
        counts = [count(one) for one in session._tensors]
        before = int(open("/proc/self/statm").read().split()[1]) * page
        pool.call(lambda: run(10_000))
        after = int(open("/proc/self/statm").read().split()[1]) * page
        assert [count(one) for one in session._tensors] == counts
    assert after - before < 1 << 20  # 100 bytes a call


@pytest.mark.parametrize("order", ["neocpu first", "tvm first"])
def test_it_gets_along_with_tvm_in_one_process(linear, order):
    script = """
import sys
import numpy as np
x = np.ones((4, 64), 'float32')
def ours():
    import neocpu
    return neocpu.load(sys.argv[1], 2)
def theirs():
    import tvm
    return tvm.runtime.tensor(x)
if sys.argv[2] == 'tvm first':
    tensor, module = theirs(), ours()
else:
    module, tensor = ours(), theirs()
    assert 'tvm_ffi' in sys.modules
assert (tensor.numpy() == x).all()
import tvm_ffi
rebuilt = tvm_ffi.load_module(sys.argv[1])  # the same code, loaded by TVM itself
print(module(x).shape, rebuilt.implements_function('vm_load_executable'))
libraries = {line.split()[-1] for line in open('/proc/self/maps') if 'libtvm_ffi.so' in line}
print(len(libraries))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(linear.path), order],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "(4, 33) True\n1\n", done.stderr
