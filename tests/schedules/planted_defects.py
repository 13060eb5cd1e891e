"""Kernels with an index or a loop that is off by one, run between inaccessible pages.

``python -m tests.schedules.planted_defects`` runs each kernel unchanged and with its defect in
separate children, and prints a line of JSON for each.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import tirx
from tvm.ir import TensorLoad, Var

from neocpu.runtime.aligned_memory import aligned_empty
from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import kernel_arguments, random_operands
from neocpu.schedules.operators.concat import lower_concat, lower_gather
from neocpu.schedules.operators.dense import (
    DenseWorkload,
    argument_shapes,
    lower_dense,
    pack_weights,
)
from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.operators.layout_transform import lower_transform
from neocpu.schedules.operators.pool import lower_global_pool, lower_pool
from neocpu.schedules.operators.ranking.non_max_suppression import lower_non_max_suppression
from neocpu.schedules.operators.ranking.top_k import lower_top_k
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, Format
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp
from tests import conv_workloads
from tests.conv_workloads import conv_workload, pool_workload, suppression
from tests.schedules.kernel_harness import (
    HOST,
    call,
    fuse,
    load_guarded,
    normal,
    pipeline,
    taking_any_alignment,
    unwritten,
)

ONE = (1, 1, 1, 1)
FOUND = 3
"""Exit status of a child whose kernel wrote or read memory beside its tensors."""
WORKSPACE = -1
STACK_BYTES = 1024
"""Allocations from here on are workspaces on the heap."""
ROOM = 1 << 16


@dataclass(frozen=True)
class Kernel:
    """A scheduled function with arguments for it."""

    func: Any
    inputs: list[NDArray]
    outputs: list[NDArray]


@dataclass(frozen=True)
class Defect:
    """A defect of a kernel.

    - `argument`: number of the argument that is accessed wrongly, or `WORKSPACE`.
    - `access`: whether the indices of loads or of stores are off, or the extent of the outermost
      loop.
    - `shift`: the number of elements by which they are off.
    """

    argument: int
    access: Literal["load", "store", "loop"]
    shift: int


def convolution(name: str, workload: Conv2dWorkload) -> Kernel:
    template = registry.TEMPLATES[f"conv2d_{name}"]
    assert template.applies(workload, HOST)
    scheme = template.space(workload, HOST)[0]
    operands = random_operands(workload, 1)
    weights = template.pack_weights(operands.weights, workload, scheme)
    *_, output = template.argument_shapes(workload, scheme)
    inputs = kernel_arguments(workload, scheme, operands, weights)
    return Kernel(template.lower(workload, scheme, HOST, 1), list(inputs), [unwritten(*output)])


def dense() -> Kernel:
    workload = DenseWorkload(3, 37, 40, epilogue=(EpilogueOp("bias_add"),))
    packed = pack_weights(normal((40, 37)), workload, HOST, 1)
    *_, output = argument_shapes(workload, HOST, 1)
    inputs = [normal((3, 40)), packed, normal((37,))]
    return Kernel(lower_dense(workload, HOST, 1), inputs, [unwritten(*output)])


def fused(build: Callable[..., Any], output: tuple[int, ...], *shapes: tuple[int, ...]) -> Kernel:
    """Return Relax operators as one kernel with the generic schedule."""
    func, order = fuse(build, *shapes)
    arrays = [normal(shapes[number], number) for number in order]
    return Kernel(schedule_function(func, HOST), arrays, [unwritten(output)])


def transform(source: DataLayout, destination: DataLayout) -> Kernel:
    shape = (1, 17, 5, 7)
    func = lower_transform(shape, Format(source, "float32"), Format(destination, "float32"), HOST)
    return Kernel(func, [source.pack(normal(shape))], [unwritten(destination.shape(shape))])


def pool(kind: str, layout: DataLayout) -> Kernel:
    workload = pool_workload(kind, (1, 17, 9, 11), (3, 3), stride=(2, 2), padding=ONE)
    inputs = [layout.pack(normal(workload.input_shape))]
    func = lower_pool(workload, layout, HOST)
    return Kernel(func, inputs, [unwritten(layout.shape(workload.output_shape))])


def global_pool() -> Kernel:
    shape, layout = (1, 33, 7, 7), DataLayout(16)
    func = lower_global_pool("avg", shape, Format(layout, "float32"), HOST)
    return Kernel(func, [layout.pack(normal(shape))], [unwritten(layout.shape((1, 33, 1, 1)))])


def concat() -> Kernel:
    shapes = [(1, c, 5, 7) for c in (3, 6)]
    func = lower_concat(shapes, 1, HOST, Format(NCHW, "float32"))
    return Kernel(func, [normal(shape) for shape in shapes], [unwritten((1, 9, 5, 7))])


def gather() -> Kernel:
    shapes, layout = [(1, 58, 5, 7)] * 2, DataLayout(8)
    func = lower_gather(shapes, [(0, 29), (29, 58)], HOST, Format(layout, "float32"))
    inputs = [layout.pack(normal(shape)) for shape in shapes]
    return Kernel(func, inputs, [unwritten(layout.shape((1, 58, 5, 7)))])


def join() -> Kernel:
    workload = conv_workloads.join("elementwise", (40, 40), (1, 7, 9))
    (scheme,) = registry.schemes(workload, HOST)
    *inputs, output = registry.argument_shapes(workload, scheme)
    func = registry.lower(workload, scheme, HOST, 1)
    return Kernel(func, [normal(shape) for shape, _ in inputs], [unwritten(*output)])


def top_k() -> Kernel:
    outputs = [unwritten((3, 17, 1)), unwritten((3, 17, 1), "int64")]
    return Kernel(lower_top_k((3, 99, 1), 17, largest=True), [normal((3, 99, 1))], outputs)


def non_max_suppression() -> Kernel:
    workload = suppression(1, 2, 21, 10, score_threshold=0.0)
    corner = normal((1, 21, 2))
    boxes = np.concatenate([corner, corner + 0.1], 2)
    outputs = [unwritten((workload.rows, 3), "int64"), unwritten((1,), "int64")]
    scores = np.abs(normal((1, 2, 21))) + 0.1
    return Kernel(lower_non_max_suppression(workload), [boxes, scores], outputs)


IMAGE = conv_workload(1, 7, 9, 11, 29, (3, 3), padding=ONE)
TILES = conv_workload(1, 17, 7, 9, 31, (3, 3), padding=ONE)
PIXELS = conv_workload(1, 67, 7, 7, 59, (1, 1))
STRIDED = conv_workload(1, 67, 7, 7, 59, (1, 1), stride=(2, 2))
GROUPS = conv_workload(1, 24, 6, 14, 24, (3, 3), groups=3, padding=ONE)
DEPTHWISE = conv_workload(1, 17, 9, 11, 17, (3, 3), groups=17, stride=(2, 2))

CASES: list[tuple[str, Callable[[], Kernel], Defect]] = [
    ("direct, its image", lambda: convolution("direct", IMAGE), Defect(0, "load", 1)),
    ("direct, its weights", lambda: convolution("direct", IMAGE), Defect(1, "load", -1)),
    ("direct, its output", lambda: convolution("direct", IMAGE), Defect(2, "store", -1)),
    ("pointwise", lambda: convolution("pointwise", PIXELS), Defect(0, "load", -1)),
    ("pointwise, its strip", lambda: convolution("pointwise", STRIDED),
     Defect(WORKSPACE, "store", 1)),
    ("depthwise", lambda: convolution("depthwise", DEPTHWISE), Defect(0, "load", -1)),
    ("grouped", lambda: convolution("grouped", GROUPS), Defect(1, "load", 1)),
    ("winograd", lambda: convolution("winograd", TILES), Defect(2, "store", 1)),
    ("winograd, its tiles", lambda: convolution("winograd", TILES), Defect(WORKSPACE, "load", -1)),
    ("nchw", lambda: convolution("nchw", IMAGE), Defect(2, "store", 1)),
    ("max pool in blocks", lambda: pool("max", DataLayout(8)), Defect(0, "loop", 1)),
    ("average pool", lambda: pool("avg", NCHW), Defect(0, "load", 1)),
    ("global pool", global_pool, Defect(1, "store", -1)),
    ("concat", concat, Defect(1, "load", 1)),
    ("gather", gather, Defect(2, "store", 1)),
    ("dense", dense, Defect(2, "load", 1)),
    ("pack", lambda: transform(NCHW, DataLayout(8)), Defect(0, "load", -1)),
    ("unpack", lambda: transform(DataLayout(8), NCHW), Defect(1, "store", 1)),
    ("join", join, Defect(0, "loop", 1)),
    ("elementwise",
     lambda: fused(lambda op, x, y: op.nn.relu(op.add(x, y)), (3, 37, 41), (3, 37, 41), (3, 1, 1)),
     Defect(0, "load", 1)),
    ("softmax", lambda: fused(lambda op, x: op.nn.softmax(x, -1), (3, 33), (3, 33)),
     Defect(1, "store", -1)),
    ("mean", lambda: fused(lambda op, x: op.mean(x, [2]), (3, 5), (3, 5, 7)), Defect(0, "load", 1)),
    ("transpose", lambda: fused(lambda op, x: op.permute_dims(x, [1, 0]), (9, 5), (5, 9)),
     Defect(1, "store", 1)),
    ("resize",
     lambda: fused(lambda op, x: op.image.resize2d(x, (9, 7), layout="NCHW"), (1, 3, 9, 7),
                   (1, 3, 5, 5)),
     Defect(0, "load", 1)),
    ("top k", top_k, Defect(0, "load", -1)),
    ("top k, its entries", top_k, Defect(WORKSPACE, "load", 1)),
    ("non-max suppression", non_max_suppression, Defect(0, "load", 1)),
]  # fmt: skip


def plant(func: tirx.PrimFunc, defect: Defect) -> tirx.PrimFunc:
    """Return a function, lowered to flat buffers, with the defect."""
    if defect.access == "loop":
        return func.with_body(_with_one_more_turn(func.body, defect.shift))
    numbers = _numbers_of(func.body)

    def shifted(indices: Any) -> list[Any]:
        *outer, last = indices
        if isinstance(last, tirx.Ramp):
            return [*outer, tirx.Ramp(last.base + defect.shift, last.stride, last.lanes)]
        return [*outer, last + defect.shift]

    def load(node: Any) -> Any:
        if numbers.get(node.source) != defect.argument:
            return node
        return tirx.BufferLoad(node.source, shifted(node.indices))

    def store(node: Any) -> Any:
        if numbers.get(node.buffer) != defect.argument:
            return node
        return tirx.BufferStore(node.buffer, node.value, shifted(node.indices))

    rule = (TensorLoad, load) if defect.access == "load" else (tirx.BufferStore, store)
    body = tvm_ffi.structural_map(func.body, rule)
    assert not body.same_as(func.body), f"{defect} changes nothing"
    return func.with_body(body)


def _numbers_of(body: Any) -> dict[Var, int]:
    """Return the argument that each buffer is a view of; `WORKSPACE` stands for the heap."""
    numbers: dict[Var, int] = {}

    def declare(declaration: Any) -> None:
        variables = (v for v in getattr(declaration.data, "args", ()) if isinstance(v, Var))
        viewed = next((numbers[v] for v in variables if v in numbers), None)
        arguments = {number for number in numbers.values() if number != WORKSPACE}
        numbers[declaration.buffer] = len(arguments) if viewed is None else viewed

    def allocate(allocation: Any) -> None:
        buffer = allocation.buffer
        elements = math.prod(map(int, buffer.shape))
        if buffer.scope() != "local" and elements * buffer.dtype.bits // 8 >= STACK_BYTES:
            numbers[buffer] = WORKSPACE

    rules = ((tirx.DeclBuffer, declare), (tirx.AllocBuffer, allocate))
    for kind, rule in rules:
        tvm_ffi.structural_walk(body, (kind, rule), order="pre")
    return numbers


def _with_one_more_turn(body: Any, turns: int) -> Any:
    """Return ``body`` with more iterations of its first outermost loop."""
    loops: list[Any] = []
    tvm_ffi.structural_walk(body, (tirx.For, loops.append), order="pre")

    def longer(loop: Any) -> Any:
        if not loop.loop_var.same_as(loops[0].loop_var):
            return loop
        extent, after = loop.extent + turns, (loop.annotations, loop.step, loop.span)
        kind, binding = loop.kind, loop.thread_binding
        return tirx.For(loop.loop_var, loop.min, extent, kind, loop.body, binding, *after)

    return tvm_ffi.structural_map(body, (tirx.For, longer))


def build(kernels: Sequence[Kernel]) -> Any:
    """Compile each kernel unchanged, with its defect, and with its defect for any alignment."""

    def change(func: Any) -> Any:
        kind, _, number = str(func.attrs["global_symbol"]).rpartition("_")
        if kind.endswith("sound"):
            return func
        broken = plant(func, CASES[int(number)][-1])
        return taking_any_alignment(broken) if kind.endswith("exact") else broken

    tirx.register_tir_pipeline("planted", lambda: pipeline(change))
    functions = {
        (name := f"{kind}_{number}"): kernel.func.with_attr("global_symbol", name)
        for number, kernel in enumerate(kernels)
        for kind in ("sound", "broken", "exact")
    }
    return tvm.tirx.build(tvm.IRModule(functions), HOST.to_tvm(), pipeline="planted")


def call_with_room(function: Callable[..., Any], kernel: Kernel) -> None:
    """Call a kernel as in production, with its arguments amid writable memory."""
    arguments = []
    for array in (*kernel.inputs, *kernel.outputs):
        room = aligned_empty((array.nbytes + 2 * ROOM,), np.uint8)
        room.fill(0)
        argument = room[ROOM : ROOM + array.nbytes].view(array.dtype).reshape(array.shape)
        argument[...] = array
        arguments.append(tvm_ffi.from_dlpack(argument))
    function(*arguments)


def outcome(function: Callable[[], object]) -> int:
    """Return the exit of a child that calls ``function``: 0, minus its signal, or `FOUND`."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        status = 1
        try:
            function()
            status = 0
        except AssertionError:
            status = FOUND
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Run all cases."""
    kernels = [make() for _, make, _ in CASES]
    built = build(kernels)
    guarded = load_guarded(built)
    assert built["sound_0"]  # generates the code that children run
    for number, (kernel, (name, _, defect)) in enumerate(zip(kernels, CASES, strict=True)):

        def run(kind: str, kernel: Kernel = kernel, number: int = number) -> object:
            if kind == "unguarded":
                return call_with_room(built[f"broken_{number}"], kernel)
            function = guarded[f"{kind}_{number}"]
            return call(function, kernel.inputs, kernel.outputs, exact=kind == "exact")

        kinds = ("sound", "broken", "exact", "unguarded")
        outcomes = {kind: outcome(partial(run, kind)) for kind in kinds}
        print(json.dumps({"name": name, "defect": str(defect), **outcomes}), flush=True)


if __name__ == "__main__":
    main()
