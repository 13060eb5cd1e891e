"""Kernels compiled on several CPUs: the same code, one error, and nothing left behind."""

import errno
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial

import needs
import numpy as np
import onnx
import psutil
import pytest
import tvm
import tvm_ffi
from differential import make_model
from forgery import checked_header
from onnx import helper
from tvm import te, tirx

import neocpu
from neocpu import pipeline
from neocpu.building import parallel_codegen
from neocpu.building.elf import read_elf
from neocpu.building.forked import Limits
from neocpu.building.object_cache import KernelCode
from neocpu.building.parallel_codegen import CodeGeneration
from neocpu.compilation.compile_each import compile_each
from neocpu.compilation.compile_options import CompileOptions, Member
from neocpu.foundation import temporary
from neocpu.foundation.errors import ArtifactError, NeoCPUError, UnsupportedError
from neocpu.foundation.progress import silent
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.schedules.vocabulary.target_parsing import host_target, parse_target

HOST = host_target()
pytestmark = pytest.mark.usefixtures("code_of_its_own")


@pytest.fixture(autouse=True, name="others")
def no_child_stays() -> Iterator[set[psutil.Process]]:
    """Yield the children from before: Python's own tracker of resources stays once started."""
    before = set(psutil.Process().children())
    yield before
    assert set(psutil.Process().children()) <= before


def kernels(count: int) -> tvm.IRModule:
    """Functions ``k00``, ``k01``, … of as many sizes."""
    functions = {}
    for number in range(count):
        a = te.placeholder((64 + number,), name="a")
        b = te.compute(a.shape, lambda i: a[i] + 1.0, name="b")  # noqa: B023
        name = f"k{number:02d}"
        functions[name] = te.create_prim_func([a, b]).with_attr("global_symbol", name)
    return tvm.IRModule(functions)


def compile_objects(mod: tvm.IRModule, workers: int) -> list[bytes]:
    return objects_of(CodeGeneration(mod, HOST, workers))


def objects_of(generation: CodeGeneration) -> list[bytes]:
    return [each.code for each in codes_of(generation).values()]


def codes_of(generation: CodeGeneration) -> dict[str, KernelCode]:
    with generation:
        generation.start()
        return generation.codes()


def chain() -> onnx.ModelProto:
    """Four convolutions of different widths."""
    rng = np.random.default_rng(0)
    nodes, weights, channels = [], {}, 3
    for number, outputs in enumerate((8, 16, 24, 32)):
        array = rng.normal(size=(outputs, channels, 3, 3)).astype(np.float32) / (3 * channels**0.5)
        weights[f"w{number}"] = array
        inputs = [f"x{number}", f"w{number}"]
        nodes.append(helper.make_node("Conv", inputs, [f"x{number + 1}"], pads=[1] * 4))
        channels = outputs
    return make_model(nodes, {"x0": np.zeros((1, 3, 8, 8), "float32")}, weights, ["x4"])


def test_objects_do_not_depend_on_the_number_of_cpus():
    one, three = (compile_objects(kernels(5), workers) for workers in (1, 3))
    assert one == three
    assert len(set(one)) == 5


def test_a_network_does_not_depend_on_the_number_of_cpus(monkeypatch):
    results, codes = [], []
    for cpus in (1, 3):
        monkeypatch.setattr("neocpu.pipeline.usable_cpus", lambda cpus=cpus: cpus)
        with neocpu.compile(chain(), threads=1, verify=False) as compiled:
            data = memoryview(compiled.path.read_bytes())
            text = read_elf(data).find(".text")
            codes.append(bytes(data[text.offset : text.offset + text.size]))
            with compiled.module() as module:
                results.append(module.run(random_inputs(module.inputs, seed=0))["x4"])
    assert codes[0] == codes[1]
    np.testing.assert_array_equal(*results)


def spoil(monkeypatch, bad: str, act, *, plain_too: bool = False) -> None:
    """Call ``act`` when code is generated for the kernel called ``bad``, unless it is plain."""
    real = parallel_codegen._do

    def do(job, target):
        if job.name == bad and (plain_too or not job.plain):
            act()
        real(job, target)

    monkeypatch.setattr(parallel_codegen, "_do", do)


def fail() -> None:
    raise RuntimeError("stack\nLLVM has had enough")


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(PATIENT.seconds)  # another thread may be the one that the signal ends first


def abort() -> None:
    os.write(2, b"LLVM ERROR: cannot select this\n")
    os._exit(70)


def hang() -> None:
    while True:
        time.sleep(1)


def spin() -> None:
    while True:
        pass


def exhaust() -> None:
    """End this process as the system ends one that takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


PATIENT = Limits(60, 600.0)
ENDS = {
    "fail": (fail, "RuntimeError: LLVM has had enough", PATIENT),
    "crash": (crash, r"signal 11 \(SIGSEGV\)", PATIENT),
    "abort": (abort, "exit code 70: LLVM ERROR: cannot select this", PATIENT),
    "hang": (hang, "took more than 5 s", Limits(60, 5.0)),
    "spin": (spin, "took more than 1 s of a CPU's time", Limits(1, 600.0)),
    "exhaust": (exhaust, "out of memory", PATIENT),
}


@pytest.fixture(params=ENDS, name="end")
def _end(request, monkeypatch):
    act, reason, limits = ENDS[request.param]
    monkeypatch.setattr(parallel_codegen, "LIMITS", limits)
    return act, reason


@needs.one_in(2)
def test_whatever_ends_code_generation_is_one_line_that_names_the_kernel(monkeypatch, end):
    act, reason = end
    spoil(monkeypatch, "k02", act, plain_too=True)
    with pytest.raises(UnsupportedError, match=rf"kernel 'k02'.*{reason}") as caught:
        compile_objects(kernels(6), 1)
    assert "\n" not in str(caught.value)


@needs.one_in(3)
def test_a_kernel_that_ends_code_generation_is_compiled_plainly_and_computes_the_same(
    monkeypatch, end, caplog
):
    act, reason = end
    model = chain()
    with neocpu.compile(model, threads=1) as compiled, compiled.module() as module:
        inputs = random_inputs(module.inputs, seed=0)
        expected = module.run(inputs)["x4"]
    spoil(monkeypatch, "conv2d_1", act)
    with neocpu.compile(model, threads=1) as compiled, compiled.module() as module:
        np.testing.assert_allclose(module.run(inputs)["x4"], expected, rtol=1e-4, atol=1e-5)
    (warning,) = caplog.messages
    assert re.search(rf"kernel 'conv2d_1' \(which makes 'x2'\).*{reason}", warning)


def test_a_kernel_whose_work_cannot_be_counted_is_still_compiled(monkeypatch, caplog):
    expected = compile_objects(kernels(3), 1)
    monkeypatch.setattr(parallel_codegen, "count_work", lambda *arguments: fail())
    codes = codes_of(CodeGeneration(kernels(3), HOST, 1))
    assert [each.code for each in codes.values()] == expected
    assert [nest.size for nest in codes["k02"].work] == [2 * 66 * 4]
    reason = "'k02' is predicted to move its tensors and nothing else: RuntimeError: LLVM has had"
    assert len(caplog.messages) == 3
    assert reason in caplog.text


def interrupt(monkeypatch, folder, hanging: str, seconds: float, work) -> None:
    """Interrupt work on a kernel that hangs; no file may be left in the temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    spoil(monkeypatch, hanging, hang)
    timer = threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        work()
    timer.join()
    assert not list(folder.iterdir())


def test_ctrl_c_ends_the_children_at_once_and_leaves_nothing(monkeypatch, tmp_path):
    interrupt(monkeypatch, tmp_path, "k02", 0.5, lambda: compile_objects(kernels(6), 2))


def test_ctrl_c_while_tvm_calls_python_is_no_error_of_tvms(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def cost(function):
        def interrupt(statement):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)

        tvm_ffi.structural_walk(function.body, (tirx.BufferStore, interrupt))

    monkeypatch.setattr(parallel_codegen, "_cost", cost)
    with pytest.raises(KeyboardInterrupt):
        compile_objects(kernels(2), 1)
    assert not list(tmp_path.iterdir())


def test_children_take_no_part_in_the_parents_signals_and_output(monkeypatch, capfd):
    def report() -> None:
        os.write(1, b"not for the terminal")
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        spoil(monkeypatch, "k00", report)
        compile_objects(kernels(2), 1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert capfd.readouterr() == ("", "")


def each(model: onnx.ModelProto, *cpus: str):
    """Compile for several CPUs, unchecked."""
    options = CompileOptions.parse(threads=1, verify=False)
    return compile_each(
        model, [Member(parse_target(cpu)) for cpu in cpus], options, lambda _: silent
    )


def test_the_plan_for_the_next_cpu_is_made_before_one_is_linked(monkeypatch):
    events = []

    def noted(name: str):
        real = getattr(pipeline, name)

        def call(*arguments):
            events.append(name)
            return real(*arguments)

        return call

    for name in ("apply_plan", "write_artifact"):
        monkeypatch.setattr(pipeline, name, noted(name))
    targets = []
    for compiled in each(chain(), "sse", "avx2", "avx512"):
        with compiled:
            targets.append(compiled.header.target)
    assert len(set(targets)) == 3
    assert events == ["apply_plan"] * 2 + ["write_artifact", "apply_plan"] + ["write_artifact"] * 2


def test_an_error_in_the_next_plan_ends_the_children(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spoil(monkeypatch, "conv2d_1", hang)
    rewritten = iter([pipeline.apply_plan, lambda *arguments: fail()])
    monkeypatch.setattr(pipeline, "apply_plan", lambda *arguments: next(rewritten)(*arguments))
    with pytest.raises(RuntimeError, match="LLVM has had enough"):
        list(each(chain(), "avx2", "avx512"))
    assert not list(tmp_path.iterdir())


def test_taking_only_the_first_of_several_targets_ends_the_other_children(
    monkeypatch, tmp_path, others
):
    """A caller may stop after the first target; the children of the second then end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    compiled = each(chain(), "avx2", "avx512")
    with next(compiled) as first:
        compiled.close()
        assert set(psutil.Process().children()) <= others
        assert first.path.exists()
    assert not list(tmp_path.iterdir())
    assert list(each(chain())) == []


def test_ctrl_c_while_two_are_at_work_leaves_nothing(monkeypatch, tmp_path):
    work = partial(list, each(chain(), "avx2", "avx512"))
    interrupt(monkeypatch, tmp_path, "conv2d_1", 3.0, work)
    assert not [t for t in threading.enumerate() if t.name == "neocpu-jobs"]


def test_nothing_is_planned_ahead_of_a_tuner(monkeypatch):
    """The tuner's measurements must not share the CPUs with planning."""
    events = []
    monkeypatch.setattr(
        "neocpu.compilation.compile_each._tune_networks", lambda *arguments: events.append("tune")
    )
    options = CompileOptions.parse(threads=1, verify=False, tune_budget=1.0)
    cpus = [Member(parse_target(cpu)) for cpu in ("avx2", "avx512")]
    for compiled in compile_each(chain(), cpus, options, lambda _: silent):
        compiled.close()
        events.append("done")
    assert events == ["tune", "done"] * 2


def test_a_full_disk_is_no_kernels_fault(monkeypatch):
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    spoil(monkeypatch, "k00", full, plain_too=True)
    generation = CodeGeneration(kernels(1), HOST, 1)
    monkeypatch.setattr(temporary, "FULL_BYTES", 1 << 62)
    with pytest.raises(ArtifactError, match=r"No space left on device.*set TMPDIR"):
        objects_of(generation)


def test_a_system_without_processes_to_give_is_said(monkeypatch):
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    with pytest.raises(NeoCPUError, match=r"cannot start a child process.*temporarily unavailable"):
        compile_objects(kernels(2), 2)
    assert not [t for t in threading.enumerate() if t.name == "neocpu-compiler"]


def test_the_artifact_says_how_long_each_phase_took_and_what_verification_found(tmp_path):
    with neocpu.compile(chain(), threads=1) as compiled:
        compiled.export(tmp_path / "chain.so")
    header = checked_header(tmp_path / "chain.so")
    assert header == compiled.header
    phases = {phase.name: phase.seconds for phase in header.plan.passes}
    assert phases == compiled.seconds
    assert {"import", "build", "link", "verify"} <= set(phases)
    check = compiled.verification
    assert header.plan.verification.max_abs_error == check.max_abs_error > 0
    assert header.plan.verification.max_rel_error == check.max_rel_error
