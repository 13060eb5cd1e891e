"""A model's distance from the machine's limits: multiply-adds and memory reads per second.

Both limits are measured (`neocpu.bench.limits.peak`), never looked up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

import onnx

from neocpu.bench.limits.measuring_process import measure_in_process
from neocpu.foundation.errors import TargetError
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.machine.machine_info import CpuTime, OtherLoad, caches, own_cpu_seconds
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.units import plural
from neocpu.frontend.control_flow.loop_nodes import repeated
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.onnx_graph.weightless_model import tensor_bytes
from neocpu.frontend.shapes.static_shapes import static_dims
from neocpu.plan.members import members

TIMEOUT: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    threads: int
    flops: float  # Float32 operations per second in vector multiply-adds, each counted as two
    dram: float  # bytes per second read from memory
    cache: int = 0  # bytes of the last-level cache, whose data need no memory; 0 if unknown
    cache_read: float = 0.0  # bytes per second read from the last-level cache; 0 if unknown
    load: OtherLoad | None = None  # load that makes the limits look lower than they are

    @property
    def warnings(self) -> tuple[str, ...]:
        if self.load is None or not self.load.disturbing:
            return ()
        return (f"busy machine: {self.load} while its limits were measured",)

    def to_json(self) -> JsonObject:
        return {**asdict(self), "warnings": self.warnings}


def measure_limits(threads: int, on_progress: ProgressCallback = silent) -> Limits:
    """Measure this machine in a process, whose threads end with it. Raises TargetError."""
    on_progress(Progress("measure limits", detail=plural(threads, "thread")))
    before, own = CpuTime.now(), own_cpu_seconds()
    measured = measure_in_process(
        "neocpu.bench.limits.peak",
        (threads,),
        TargetError,
        "measure this machine's limits",
        TIMEOUT,
    )
    load = before.other_load(CpuTime.now(), own_cpu_seconds() - own)
    return Limits(
        threads=threads,
        flops=measured["gflops"] * 1e9,
        dram=measured["read_gbytes"] * 1e9,
        cache=max(caches().values(), default=0),
        cache_read=measured["cache_gbytes"] * 1e9,
        load=load,
    )


@dataclass(frozen=True, slots=True)
class Work:
    # Operations of convolutions and matrix products in the direct algorithm, two per
    # multiply-accumulate. Winograd's has fewer, and can exceed the limit that follows from these.
    flops: int
    bytes: int  # of weights, inputs and outputs, moved once: activations may stay in the cache


def work_of(model: LoadedModel) -> Work:
    graph = model.bounded.graph
    shapes = _shapes(graph)
    flops = sum(_flops(node, shapes) * times for node, times in repeated(graph.node))
    moved = sum(tensor_bytes(tensor) for tensor in graph.initializer)
    moved += sum(_bytes(value) for value in (*graph.input, *graph.output))
    return Work(flops, moved)


@dataclass(frozen=True, slots=True)
class Roofline:
    model: str
    seconds: float  # seconds of one inference
    flops: int  # see `Work`
    bytes: int
    limits: Limits

    @property
    def fma_share(self) -> float:
        """Operations per second over the limit; above 1 only by algorithms with fewer of them."""
        return self.flops / self.seconds / self.limits.flops

    @property
    def dram_share(self) -> float:
        """Bytes per second over the limit; above 1 only where a cache holds them."""
        return self.bytes / self.seconds / self.limits.dram

    @property
    def compute_seconds(self) -> float:
        return self.flops / self.limits.flops

    @property
    def memory_seconds(self) -> float:
        """The least seconds of its memory traffic: 0 if all data fit the last-level cache."""
        return 0.0 if self.bytes <= self.limits.cache else self.bytes / self.limits.dram

    @property
    def bound(self) -> Literal["compute", "memory"]:
        return "compute" if self.compute_seconds >= self.memory_seconds else "memory"

    @property
    def lower_bound(self) -> float:
        """The least seconds an inference by direct convolution can take on this machine."""
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def share(self) -> float:
        return self.lower_bound / self.seconds

    def to_json(self) -> JsonObject:
        names = "model seconds flops bytes fma_share dram_share bound lower_bound share limits"
        return members(self, names)


Shapes = Mapping[str, Sequence[int] | None]


def _shapes(graph: onnx.GraphProto) -> dict[str, Sequence[int] | None]:
    values = (*graph.input, *graph.value_info, *graph.output)
    shapes: dict[str, Sequence[int] | None] = {value.name: static_dims(value) for value in values}
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    return shapes


def _flops(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Return the operations of a convolution or product, two per multiply-accumulate; else 0."""
    first, second = (shapes.get(name) for name in (*node.input, "", "")[:2])
    output = shapes.get(node.output[0])
    if first is None or second is None or output is None:
        return 0
    match node.op_type:
        case "Conv":
            # The weights' second extent counts the input channels of one group.
            return 2 * math.prod(output) * math.prod(second[1:])
        case "ConvTranspose":
            return 2 * math.prod(first) * math.prod(second[1:])
        case "Gemm":
            inner = first[0] if _attribute(node, "transA") else first[1]
            return 2 * math.prod(output) * inner
        case "MatMul":
            return 2 * math.prod(output) * first[-1]
    return 0


def _attribute(node: onnx.NodeProto, name: str) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == name), 0)


def _bytes(value: onnx.ValueInfoProto) -> int:
    """Return the size of a tensor, 0 if its shape depends on the data."""
    shape = static_dims(value)
    if shape is None:
        return 0
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    return int(math.prod(shape) * dtype.itemsize)
