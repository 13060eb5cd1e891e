"""A loaded module: results, inputs of every kind, errors, threads, and its end."""

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from float_models import float_model
from onnx import helper
from scripts import run_script
from waiting import wait_until

import neocpu
from neocpu.building.elf import read_elf
from neocpu.building.link import write_artifact
from neocpu.foundation.errors import ArtifactError, UsageError
from neocpu.runtime.header import WEIGHTS_SECTION
from neocpu.runtime.module import Module, load


def check(toy, outputs, inputs):
    for output, expected in zip(outputs, toy.reference(*inputs), strict=True):
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


def test_one_output_is_an_array(linear, linear_module):
    inputs = linear.inputs()
    output = linear_module(inputs[0])
    assert isinstance(output, np.ndarray)
    assert output.dtype == np.float32
    check(linear, [output], inputs)
    check(linear, [linear_module(inputs)], inputs)


def test_several_outputs_are_a_tuple_in_graph_order(two_way, two_way_module):
    inputs = two_way.inputs()
    outputs = two_way_module(inputs)
    assert isinstance(outputs, tuple)
    check(two_way, outputs, inputs)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_any_thread_count_gives_the_same_bits(linear, linear_module, threads):
    inputs = linear.inputs()
    with load(linear.path, threads) as module:
        assert module.threads == min(threads, len(os.sched_getaffinity(0)))
        np.testing.assert_array_equal(module(inputs), linear_module(inputs))


@pytest.mark.parametrize("option", [{"verify": False}, {"hugepages": True}])
def test_options_do_not_change_the_result(two_way, two_way_module, option):
    inputs = two_way.inputs()
    with load(two_way.path, **option) as module:
        for one, other in zip(module(inputs), two_way_module(inputs), strict=True):
            np.testing.assert_array_equal(one, other)


def misaligned(x):
    raw = np.empty(x.nbytes + 1, np.uint8)
    copy = raw[1:].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


@pytest.mark.parametrize("size", [3 << 14, (3 << 14) + 1])  # of three pieces, and a bit more
def test_threads_copy_an_input_of_many_pieces(tmp_path, size):
    node = helper.make_node("Relu", ["x"], ["y"])
    model = float_model("relu", [node], {"x": (1, size)}, {"y": (1, size)})
    path = tmp_path / "relu.so"
    neocpu.compile(model, verify=False).export(path)
    x = np.random.default_rng(0).standard_normal((1, size)).astype("float32")
    with load(path, threads=2) as module:
        np.testing.assert_array_equal(module(misaligned(x)), np.maximum(x, 0))


def test_outputs_never_alias(two_way, two_way_module):
    first, second = two_way.inputs(1), two_way.inputs(2)
    kept = two_way_module(first)
    copies = [x.copy() for x in kept]
    later = two_way_module(second)
    for output in later:
        output[...] = np.nan
    for output, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(output, copy)
        assert not any(np.shares_memory(output, other) for other in (*later, *first, *second))
    check(two_way, two_way_module(first), first)


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((2, 8, 6, 3), "it looks like NHWC, pass x.transpose(0, 3, 1, 2)"),
        ((2, 3, 6, 8), "got float32[2,3,6,8]"),
        ((3, 8, 6), "got float32[3,8,6]"),
        ((), "got float32[]"),
    ],
)
def test_wrong_shape_names_both_and_the_likely_fix(two_way, two_way_module, shape, hint):
    with pytest.raises(UsageError) as caught:
        two_way_module([two_way.inputs()[0], np.zeros(shape, "float32")])
    message = str(caught.value)
    assert message.startswith("input 'mask': expected float32[2,3,8,6], got ")
    assert hint in message
    assert "\n" not in message


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint8"])
def test_wrong_dtype_is_not_cast(linear_module, dtype):
    with pytest.raises(UsageError, match=rf"got dtype {dtype}: convert .* x.astype\('float32'\)"):
        linear_module(np.zeros((4, 64), dtype))


def test_wrong_name_suggests_the_right_one(two_way, two_way_module):
    image, mask = two_way.inputs()
    with pytest.raises(UsageError, match=r"no input 'imge'.*did you mean 'image'"):
        two_way_module.run({"imge": image, "mask": mask})
    with pytest.raises(UsageError, match="missing input mask"):
        two_way_module.run({"image": image})
    for unnamed in (image, [image, mask], None):
        with pytest.raises(UsageError, match="inputs by name must be a mapping"):
            two_way_module.run(unnamed)


def test_many_threads_may_call_one_module(linear, linear_module):
    inputs = [linear.inputs(seed) for seed in range(8)]
    expected = [linear_module(x) for x in inputs]

    def hammer(start: int) -> None:
        for i in range(start, start + 40):
            np.testing.assert_array_equal(linear_module(inputs[i % 8]), expected[i % 8])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hammer, range(8)))


def tasks():
    return {int(name) for name in os.listdir("/proc/self/task")}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_exactly_the_threads_asked_for_and_the_caller_where_it_was(linear, threads):
    allowed = os.sched_getaffinity(0)
    before = tasks()
    with load(linear.path, threads) as module:
        module(linear.inputs())
        assert len(tasks() - before) == min(threads, len(allowed)) - 1  # the caller is one
        assert os.sched_getaffinity(0) == allowed
    wait_until(lambda: tasks() <= before)  # one that was joined may be seen a moment


def test_default_threads_are_the_cpus_of_this_process(linear):
    script = """
import os, sys, neocpu
cpu = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cpu})
module = neocpu.load(sys.argv[1])
module.warmup(1)
assert {len(os.sched_getaffinity(int(t))) for t in os.listdir('/proc/self/task')} == {1}
print(module.threads)
"""
    assert run_script(script, str(linear.path)) == "1\n"


def test_running_imports_no_compiler(linear):
    script = """
import sys, neocpu, numpy as np
print(neocpu.load(sys.argv[1])(np.ones((4, 64), 'float32')).shape)
heavy = {'tvm', 'tvm_ffi', 'onnx', 'xgboost', 'scipy', 'click', 'rich', 'onnxslim', 'psutil'}
print(sorted((heavy | {'tornado'}) & {name.partition('.')[0] for name in sys.modules}))
print(neocpu.Module.__name__, neocpu.__version__)
"""
    output = run_script(script, str(linear.path)).splitlines()
    assert output == ["(4, 33)", "[]", f"Module {neocpu.__version__}"]


def test_exit_in_the_middle_of_a_run_is_clean(linear):
    script = """
import sys, threading, neocpu, numpy as np
module = neocpu.load(sys.argv[1])
def call():
    try:
        while True:
            module(np.ones((4, 64), 'float32'))
    except neocpu.runtime.module.UsageError:
        pass  # closed by the interpreter's exit
for _ in range(3):
    threading.Thread(target=call, daemon=True).start()
module.warmup(20)
"""
    run_script(script, str(linear.path))


def test_exit_finishes_what_was_submitted(linear):
    script = """
import sys, neocpu, numpy as np
pool = neocpu.ThreadPool(2)
modules = [neocpu.load(sys.argv[1], pool=pool), neocpu.load(sys.argv[1], 2)]
done = []
for module in modules:
    for _ in range(50):
        future = module.submit(np.ones((4, 64), 'float32'))
        future.add_done_callback(lambda future: done.append(future.result().shape))
"""
    # Exit functions run last in, first out: this one behind those of the pools.
    script = "import atexit\natexit.register(lambda: print(len(done)))\n" + script
    assert run_script(script, str(linear.path)) == "100\n"


def test_closing_ends_warming_up(linear):
    module = load(linear.path, threads=1)
    with ThreadPoolExecutor(1) as other:
        warm = other.submit(module.warmup, 1_000_000)
        module.close()
        error = warm.exception(60)
    assert isinstance(error, UsageError)
    assert "is closed" in str(error)


def test_close_waits_for_calls_and_refuses_later_ones(linear):
    module = load(linear.path, threads=2)
    inputs = linear.inputs()
    results, refusals = [], []

    def call() -> None:
        while not refusals:
            try:
                results.append(module(inputs))
            except UsageError as error:
                refusals.append(str(error))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    while len(results) < 20:
        pass
    module.close()
    module.close()
    for caller in callers:
        caller.join(30)
    assert "module 'linear' is closed" in refusals[0]
    for result in results:
        check(linear, [result], inputs)


def test_a_dropped_module_frees_its_threads_and_its_weights(linear):
    script = """
import gc, os, sys, neocpu
def tasks():
    return set(os.listdir('/proc/self/task'))
before = tasks()
module = neocpu.load(sys.argv[1], 2)
module.warmup()
assert sys.argv[1] in open('/proc/self/maps').read()
del module
gc.collect()
assert sys.argv[1] not in open('/proc/self/maps').read()
assert tasks() == before
print('done')
"""
    assert run_script(script, str(linear.path)) == "done\n"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_file_s_content_in_memory(linear, kind):
    content = kind(linear.path.read_bytes())
    with load(content) as module:
        del content
        check(linear, [module(linear.inputs())], linear.inputs())


def test_what_is_neither_a_path_nor_bytes():
    for source in (7, None, ["a.so"]):
        with pytest.raises(TypeError, match=r"path of a compiled model or its bytes, got \w+$"):
            load(source)
    with pytest.raises(ArtifactError, match="the model in memory"):
        load(b"nothing of the kind")


def test_a_replaced_file_is_loaded_anew(linear, two_way, tmp_path):
    path = tmp_path / "model.so"
    write_artifact(linear.built, linear.weights, linear.header, path)
    old = load(path)
    write_artifact(two_way.built, two_way.weights, two_way.header, path)
    with load(path) as new:
        check(two_way, new(two_way.inputs()), two_way.inputs())
    check(linear, [old(linear.inputs())], linear.inputs())
    old.close()


def test_weights_are_the_pages_of_the_file(linear, tmp_path):
    path = Path(shutil.copy(linear.path, tmp_path / "its_own.so"))  # others may be loaded yet
    with load(path) as module:
        module.warmup()
        maps = [
            each for each in Path("/proc/self/maps").read_text().splitlines() if str(path) in each
        ]
        page = os.sysconf("SC_PAGE_SIZE")
        section = read_elf(memoryview(path.read_bytes())).find(WEIGHTS_SECTION)
        covering = []
        for line in maps:
            span, permissions, offset, *_ = line.split()
            begin, end = (int(x, 16) for x in span.split("-"))
            if int(offset, 16) <= section.offset < int(offset, 16) + end - begin:
                covering.append(permissions)
        assert section.offset % page == 0
        assert covering == ["r--p"]


def test_facts_about_the_model(two_way, two_way_module):
    assert isinstance(two_way_module, Module)
    assert two_way_module.metadata == two_way.header
    assert [str(spec) for spec in two_way_module.inputs] == [
        "image: float32[2, 3, 8, 6]",
        "mask: float32[2, 3, 8, 6]",
    ]
    assert two_way_module.outputs == two_way.header.outputs
    assert "two_way" in repr(two_way_module)
    assert "2 threads" in repr(two_way_module)


def test_the_compiler_s_versions_do_not_matter(linear, tmp_path):
    path = tmp_path / "old.so"
    header = replace(linear.header, tvm_version="0.0.7", ffi_version="0.0.8")
    write_artifact(linear.built, linear.weights, header, path)
    with load(path) as module:
        check(linear, [module(linear.inputs())], linear.inputs())


@pytest.mark.parametrize("truncated", [False, True])
def test_a_refused_artifact_leaves_no_thread(linear, two_way, tmp_path, truncated):
    """A file with right digests and another model's code, or one that is truncated."""
    path = tmp_path / "other.so"
    built = replace(two_way.built, planned=linear.built.planned)
    write_artifact(built, linear.weights, linear.header, path)
    if truncated:
        path.write_bytes(linear.path.read_bytes()[:-1])
    before = tasks()
    said = "it is truncated" if truncated else r"cannot run .*other\.so: header and code disagree"
    with pytest.raises(ArtifactError, match=said):
        load(path)
    wait_until(lambda: tasks() <= before)  # one that was joined may be seen a moment
