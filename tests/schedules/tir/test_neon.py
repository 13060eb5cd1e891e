"""NEON code of the templates: multiply-adds by lane, no spills, LLVM's model of a Cortex-A72."""

import functools
import re
import subprocess

import needs
import pytest
from conv_workloads import conv_workload
from kernel_harness import HOST, compile_for
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions import conv2d_direct, conv2d_pointwise
from neocpu.schedules.convolutions.in_groups import conv2d_depthwise, conv2d_grouped
from neocpu.schedules.convolutions.winograd import conv2d_winograd
from neocpu.schedules.estimates.register_tile import broadcast_limit, step_cycles
from neocpu.schedules.operators import dense
from neocpu.schedules.tir import neon
from neocpu.schedules.tir.builder import build_kernel, splat
from neocpu.schedules.vocabulary.numerics import FLOAT32
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

A72 = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
N1 = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")
RELU = (EpilogueOp("bias_add"), EpilogueOp("relu"))
PAD = (1, 1, 1, 1)

# The best scheme by its estimate is the one that is compiled.
KERNELS = {
    "3x3": (conv2d_direct, conv_workload(1, 64, 56, 56, 64, (3, 3), padding=PAD, epilogue=RELU)),
    "3x3 of small images": (
        conv2d_direct,
        conv_workload(1, 256, 14, 14, 256, (3, 3), padding=PAD, epilogue=RELU),
    ),
    "1x1": (conv2d_pointwise, conv_workload(1, 256, 56, 56, 64, (1, 1), epilogue=RELU)),
    "1x1 with a stride": (
        conv2d_pointwise,
        conv_workload(1, 256, 56, 56, 512, (1, 1), stride=(2, 2), epilogue=RELU),
    ),
    "winograd": (
        conv2d_winograd,
        conv_workload(1, 256, 14, 14, 256, (3, 3), padding=PAD, epilogue=RELU),
    ),
    "stem": (
        conv2d_direct,
        conv_workload(
            1, 3, 224, 224, 64, (7, 7), stride=(2, 2), padding=(3, 3, 3, 3), epilogue=RELU
        ),
    ),
    "groups of a vector": (
        conv2d_grouped.TEMPLATE,
        conv_workload(1, 128, 56, 56, 128, (3, 3), padding=PAD, groups=32, epilogue=RELU),
    ),
}
CLIP = (EpilogueOp("bias_add"), EpilogueOp("clip", (0.0, 6.0)))
DEPTHWISE = {
    (stride, steps[-1].kind): conv_workload(
        1,
        144,
        56,
        56,
        144,
        (3, 3),
        stride=(stride, stride),
        padding=PAD,
        groups=144,
        epilogue=steps,
    )
    for stride in (1, 2)
    for steps in (RELU, CLIP)
}


@functools.cache
def assembly(template, workload):
    return compile_for(template.lower(workload, template.space(workload, A72)[0], A72), A72)


def innermost_loops(text):
    """Return the instructions of every loop without another one in it."""
    lines = text.splitlines()
    labels = {line.split(":")[0]: i for i, line in enumerate(lines) if re.match(r"\.L\w+:", line)}
    spans = []
    for end, line in enumerate(lines):
        branch = re.match(r"\s+(?:b\.\w+|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.L\w+)$", line)
        if branch and labels.get(branch[1], end) < end:
            spans.append((labels[branch[1]], end))
    for start, end in spans:
        if not any(start <= a and b <= end and (a, b) != (start, end) for a, b in spans):
            code = [line.strip() for line in lines[start : end + 1]]
            yield [line for line in code if re.match(r"[a-z]", line)]


def multiply_adds(loop):
    return [line for line in loop if line.startswith("fmla")]


def loop_of_products(text):
    """Return the innermost loop with the most multiply-adds by a lane."""
    return max(innermost_loops(text), key=lambda loop: sum(is_by_lane(line) for line in loop))


def is_by_lane(line):
    return bool(re.fullmatch(r"fmla\s+v\d+\.4s, v\d+\.4s, v\d+\.s\[[0-3]\]", line))


def share_of_bound(loop):
    """Return multiply-adds per cycle by LLVM's model; a Cortex-A72 starts at most one."""
    command = [needs.program("llvm-mca"), "-mtriple=aarch64", "-mcpu=cortex-a72", "-iterations=100"]
    done = subprocess.run(
        command, input="\n".join(loop), capture_output=True, text=True, check=True
    )
    cycles = int(re.search(r"Total Cycles:\s+(\d+)", done.stdout)[1]) / 100
    return len(multiply_adds(loop)) / cycles


@pytest.mark.parametrize("name", KERNELS)
def test_products_are_multiply_adds_by_lane(name):
    loop = loop_of_products(assembly(*KERNELS[name]))
    products = multiply_adds(loop)
    assert len(products) >= 32
    assert all(map(is_by_lane, products)), products
    assert not any("[sp" in line for line in loop)
    assert not any(line.startswith(("ld1r", "dup")) for line in loop)
    assert len(loop) <= 1.35 * len(products)


@pytest.mark.parametrize("name", KERNELS)
def test_products_run_at_the_speed_of_multiply_adds(name):
    assert share_of_bound(loop_of_products(assembly(*KERNELS[name]))) >= 0.95


@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise_tiles_keep_the_pipes_busy(name):
    """Sums begin with a load of the bias, so only the activation displaces multiply-adds.

    A ReLU takes one place of ten; a clip takes 1.5 of 10.5, its integer maximum half a place.
    """
    workload = DEPTHWISE[name]
    scheme = conv2d_depthwise.space(workload, A72)[0]
    loops = innermost_loops(assembly(conv2d_depthwise, workload))
    (tile,) = (loop for loop in loops if len(multiply_adds(loop)) == 9 * scheme.reg_n)
    assert not any("[sp" in line for line in tile)
    assert not any(line.startswith(("fadd", "fcm")) for line in tile)
    clip = name[1] == "clip"
    for instruction, expected in (("fmax", not clip), ("fmin", clip), ("smax", clip)):
        assert sum(line.startswith(instruction) for line in tile) == scheme.reg_n * expected
    # One or two loads for each multiply-add, without address computations.
    assert not any(line.startswith("sub\tx") for line in tile)
    assert len(tile) < 1.9 * len(multiply_adds(tile))
    assert share_of_bound(tile) >= (0.85 if clip else 0.88)


def test_dense_layers_load_four_channels_at_a_time():
    workload = dense.DenseWorkload(1, 1000, 512)
    loop = loop_of_products(compile_for(dense.lower_dense(workload, A72), A72))
    assert all(map(is_by_lane, multiply_adds(loop)))
    assert not any(line.startswith("ld1r") for line in loop)
    # 512 channels that are no whole vectors are multiplied one by one.
    odd = dense.DenseWorkload(1, 1000, 511)
    assert "fmla" in compile_for(dense.lower_dense(odd, A72), A72)


def scaled_by(index, size, lanes=4):
    """Return a kernel that multiplies vectors with scalars, at ``index`` of a loop variable."""

    def body(factors, output):
        with T.serial(size // 4) as i:
            T.buffer_store(output, splat(factors[index(i)], lanes), [T.ramp(i * lanes, 1, lanes)])

    return build_kernel([("x", (size,), "float32"), ("y", (size // 4 * lanes,), "float32")], body)


def rewritten(func):
    return str(func.with_body(neon.multiply_by_lane(func.body)).script())


def test_a_broadcast_becomes_a_lane_of_its_vector():
    script = rewritten(scaled_by(lambda i: i * 4 + 3, 16))
    assert "Shuffle" in script
    assert "[3, 3, 3, 3]" in script


def words_at(index, size):
    """Return a kernel that spreads words of four bytes, at ``index`` of a loop variable."""

    def body(x, y):
        with T.serial(4) as i:
            word = tirx.reinterpret("int32", x[T.ramp(index(i), 1, 4)])
            T.buffer_store(y, splat(word, 4), [T.ramp(i * 4, 1, 4)])

    return build_kernel([("x", (size,), "uint8"), ("y", (16,), "int32")], body)


def test_a_word_of_four_bytes_becomes_a_lane_too():
    assert "[2, 2, 2, 2]" in rewritten(words_at(lambda i: i * 16 + 8, 64))
    assert "[1, 1, 1, 1]" in rewritten(words_at(lambda i: i * 8 + 4, 64))  # of half a vector
    for func in (
        words_at(lambda i: i * 4, 64),  # which lane is not known
        words_at(lambda i: i * 16 + 2, 80),  # across two lanes
        words_at(lambda i: i * 8, 68),  # the last half is not whole
    ):
        assert rewritten(func) == str(func.script())


@pytest.mark.parametrize(
    "func",
    [
        scaled_by(lambda i: i, 16),  # which lane is not known
        scaled_by(lambda i: i * 2, 16),
        scaled_by(lambda i: i * 4, 18),  # the last vector is not whole
        scaled_by(lambda i: i * 4, 16, lanes=8),
    ],
)
def test_other_broadcasts_stay(func):
    assert rewritten(func) == str(func.script())


def test_names_of_places_are_looked_through():
    def body(x, y):
        with T.serial(4) as i:
            place = T.Bind(i * 4)
            following = T.Bind(place + 5)
            T.buffer_store(y, splat(x[following], 4), [T.ramp(place, 1, 4)])

    func = build_kernel([("x", (32,), "float32"), ("y", (16,), "float32")], body)
    assert "[1, 1, 1, 1]" in rewritten(func)


def test_other_machines_code_is_left_alone():
    func = scaled_by(lambda i: i * 4, 16).with_attr("target", HOST.to_tvm())
    assert not neon.is_target_of(func)
    assert neon.is_target_of(func.with_attr("target", A72.to_tvm()))
    assert not neon.is_target_of(scaled_by(lambda i: i * 4, 16))


def test_maxima_are_one_instruction():
    def body(x, y, z):
        with T.vectorized(4) as o:
            T.buffer_store(z, tirx.min(tirx.max(x[o], y[o]), tirx.const(6.0, "float32")), [o])

    text = compile_for(build_kernel([(name, (4,), "float32") for name in "xyz"], body), A72)
    assert len(re.findall(r"\bfmax\t", text)) == len(re.findall(r"\bfmin\t", text)) == 1
    assert "fcm" not in text


def clip_kernel(low, tasks):
    def body(x, y):
        with (T.parallel if tasks > 1 else T.serial)(tasks) as i, T.vectorized(4) as o:
            clipped = tirx.min(x[i * 4 + o], tirx.const(6.0, "float32"))
            T.buffer_store(y, tirx.max(clipped, tirx.const(low, "float32")), [i * 4 + o])

    return build_kernel([(name, (4 * tasks,), "float32") for name in "xy"], body)


def test_parallel_tasks_clip_as_integers():
    text = compile_for(clip_kernel(0.0, tasks=8), A72)
    assert len(re.findall(r"\bfmin\t", text)) == len(re.findall(r"\bsmax\t", text)) == 1
    # NaNs are made positive before and the register is as it was afterwards.
    order = re.findall(r"\b(mrs|msr|fmin|smax)\t", text)
    assert order == ["mrs", "msr", "fmin", "smax", "msr"]


@pytest.mark.parametrize(("low", "tasks"), [(-1.0, 8), (-0.0, 8), (0.0, 1)])
def test_other_clips_stay_floats(low, tasks):
    text = compile_for(clip_kernel(low, tasks), A72)
    assert "fmax\t" in text
    assert not re.search(r"\b(smax|msr)\t", text)


def test_sums_vectors_and_vectors_of_lanes_fit_the_registers():
    for vectors in range(1, 7):
        limit = broadcast_limit(vectors, A72.dot_unit(FLOAT32))
        assert vectors * limit + vectors + limit <= A72.vector_registers - 2
        assert vectors * (limit + 1) + vectors + limit + 1 > A72.vector_registers - 2


def test_one_load_brings_the_lanes_of_four_steps():
    # 2 vectors and 8 lanes are 4 loads for 16 multiply-adds: one of each a cycle.
    cycles = step_cycles(2, 8, A72.dot_unit(FLOAT32), A72, A72.l1d // 4)
    assert 16 <= cycles < 16.5
    assert cycles < step_cycles(2, 8, A72.dot_unit(FLOAT32), A72, A72.l1d // 4, broadcast_loads=8)
    assert step_cycles(2, 8, N1.dot_unit(FLOAT32), N1, N1.l1d // 4) < 0.6 * cycles


def test_estimates_prefer_pixels_side_by_side():
    """Pixels of one row have addresses that follow from one another."""
    assert conv2d_direct.space(KERNELS["3x3"][1], A72)[0].reg_n > 1
