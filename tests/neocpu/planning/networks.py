"""Small Relax functions, built like the importer builds them, for tests of the layout passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

import neocpu
from neocpu.building.link import write_artifact
from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.pipeline import Built, Dump, begin_build, finish_build, lower
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.lowering.apply_plan import RewrittenModule, apply_plan
from neocpu.planning.choice import Measured
from neocpu.planning.costs import CostModel
from neocpu.planning.extract import extract
from neocpu.planning.network import Network
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts
from neocpu.runtime.header import ArtifactHeader
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.target_parsing import host_target
from tests.guarded_machine import legalized_machine

HOST = host_target()


def float32(block: int) -> Format:
    """Return the format NCHW[block]c of float32."""
    return Format(DataLayout(block), "float32")


class Net:
    """Builds ``main`` operator by operator; weights are seeded constants."""

    def __init__(self, *shapes: Sequence[int]) -> None:
        self.bb = relax.BlockBuilder()
        self.inputs = [
            relax.Var(f"x{i}", relax.TensorType(tuple(shape), "float32"))
            for i, shape in enumerate(shapes)
        ]
        self._rng = np.random.default_rng(0)

    def const(self, *shape: int) -> Any:
        return relax.const(self._rng.standard_normal(shape).astype("float32") * 0.3)

    def conv(self, x: Any, channels: int, kernel: int = 3, **attrs: Any) -> Any:
        group_in = int(x.ty.shape[1]) // attrs.get("groups", 1)
        weight = self.const(channels, group_in, kernel, kernel)
        attrs.setdefault("padding", kernel // 2)
        x = self.bb.emit(relax.op.nn.conv2d(x, weight, **attrs))
        return self.bb.emit(relax.op.add(x, self.const(1, channels, 1, 1)))

    def emit(self, call: Any) -> Any:
        return self.bb.emit(call)

    def relu(self, x: Any) -> Any:
        return self.emit(relax.op.nn.relu(x))


def build(body: Callable[..., Any], *shapes: Sequence[int]) -> tvm.IRModule:
    """Return a module whose ``main`` is ``body(net, *inputs)``."""
    net = Net(*shapes)
    with net.bb.function("main", net.inputs):
        with net.bb.dataflow():
            out = net.bb.emit_output(body(net, *net.inputs))
        net.bb.emit_func_output(out)
    return net.bb.finalize()


def executable(mod: tvm.IRModule) -> Built:
    """Generate the code of a lowered module for this host."""
    with OneAtATime() as generations:
        return finish_build(begin_build(mod, HOST, Dump(), generations))


def run(built: Built, *arguments: np.ndarray) -> list[np.ndarray]:
    """Run the module that `executable` returned; inputs and weights are all its inputs."""
    planned = built.planned
    specs = [(array.dtype.name, array.shape) for array in (*arguments, *planned.constants)]
    specs += [(one.dtype, one.shape) for one in planned.activations]
    header = ArtifactHeader(
        name="network",
        neocpu_version=version("neocpu"),
        tvm_version=version("apache-tvm"),
        ffi_version=version("apache-tvm-ffi"),
        target=str(HOST),
        machine=HOST.machine,
        isa_features=(),
        threads=2,
        inputs=tuple(TensorSpec(f"x{i}", *specs[i]) for i in range(len(arguments))),
        outputs=tuple(
            TensorSpec(f"y{i}", *specs[tensor]) for i, tensor in enumerate(planned.program.results)
        ),
    )
    with TemporaryFolder("test") as folder:
        path = Path(folder) / "network.so"
        write_artifact(built, [], header, path)
        with neocpu.load(path) as module:
            results = module(list(arguments))
    return list(results) if isinstance(results, tuple) else [results]


def run_as_tvm(mod: tvm.IRModule, tolerance: float = 1e-4) -> tuple[Network, RewrittenModule]:
    """Compile and run a module, compare it with TVM's results, and return it as it was planned."""
    network, costs = extract(mod), cost_model()
    rewritten = apply_plan(mod, plan_layouts(network, costs, OptLevel.GLOBAL), costs)
    built = executable(lower(rewritten.mod, HOST, Dump()))
    rng = np.random.default_rng(1)
    shapes = [tuple(int(n) for n in param.ty.shape.values) for param in mod["main"].params]
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    expected = legalized_machine(mod)["main"](*map(tvm.runtime.tensor, inputs))
    expected = [expected] if isinstance(expected, tvm.runtime.Tensor) else list(expected)
    actual = run(built, *inputs, *rewritten.weights)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=tolerance)
    return network, rewritten


def cost_model(threads: int = 2, **options: Any) -> CostModel:
    """Estimates only."""
    return CostModel(
        target=HOST,
        threads=threads,
        measured=options.pop("measured", lambda workload: Measured()),
        **options,
    )


def residual(net: Net, x: Any) -> Any:
    """Two convolutions with a shortcut around the second."""
    first = net.relu(net.conv(x, 24))
    second = net.conv(first, 24)
    return net.relu(net.emit(relax.op.add(second, first)))


def projection(net: Net, x: Any) -> Any:
    """Both sides of the add are convolutions."""
    left, right = net.conv(x, 32, 1), net.conv(x, 32)
    return net.relu(net.emit(relax.op.add(left, right)))


def inception(net: Net, x: Any) -> Any:
    """Branches of different widths, pooled and joined."""
    one = net.relu(net.conv(x, 32, 1))
    three = net.relu(net.conv(x, 48))
    pooled = net.emit(relax.op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1)))
    four = net.conv(pooled, 16, 1)
    joined = net.emit(relax.op.concat([one, three, four], axis=1))
    return net.conv(joined, 40, 1)


def dense_block(net: Net, x: Any) -> Any:
    """Pre-activation convolutions on growing concats."""
    for _ in range(3):
        channels = int(x.ty.shape[1])
        scaled = net.emit(relax.op.multiply(x, net.const(1, channels, 1, 1)))
        shifted = net.emit(relax.op.add(scaled, net.const(1, channels, 1, 1)))
        new = net.conv(net.relu(shifted), 16)
        x = net.emit(relax.op.concat([x, new], axis=1))
    return x


def excite(net: Net, x: Any) -> Any:
    """Squeeze and excitation: a broadcast multiply by a pooled gate."""
    body = net.relu(net.conv(x, 20))
    squeezed = net.emit(relax.op.mean(body, [2, 3], True))
    gate = net.emit(relax.op.sigmoid(net.conv(net.relu(net.conv(squeezed, 5, 1)), 20, 1)))
    return net.conv(net.emit(relax.op.multiply(body, gate)), 8, 1)


def attend(net: Net, x: Any) -> Any:
    """Efficient channel attention: a gate that is a convolution along the channels."""
    body = net.relu(net.conv(x, 20))
    means = net.emit(relax.op.mean(body, [2, 3], True))
    row = net.emit(relax.op.reshape(means, (int(x.ty.shape[0]), 1, 1, 20)))
    near = net.emit(relax.op.nn.conv2d(row, net.const(1, 1, 1, 3), padding=(0, 1, 0, 1)))
    gate = net.emit(relax.op.reshape(net.emit(relax.op.sigmoid(near)), means.ty.shape))
    return net.conv(net.emit(relax.op.multiply(body, gate)), 17, 1)


def preactivation(net: Net, x: Any) -> Any:
    """Normalisation and activation in front of a 1x1 convolution, a gate in front of another."""
    scaled = net.emit(relax.op.multiply(x, net.const(1, int(x.ty.shape[1]), 1, 1)))
    shifted = net.emit(relax.op.add(net.const(1, int(x.ty.shape[1]), 1, 1), scaled))
    body = net.relu(net.conv(net.relu(shifted), 20, 1))
    gate = net.emit(relax.op.sigmoid(net.conv(net.emit(relax.op.mean(body, [2, 3], True)), 20, 1)))
    return net.conv(net.emit(relax.op.multiply(gate, body)), 17, 1, strides=2)


def classifier(net: Net, x: Any) -> Any:
    """An end that depends on the layout: flatten and a matrix product."""
    features = net.relu(net.conv(x, 17, 3, strides=2))
    pooled = net.emit(relax.op.nn.avg_pool2d(features, (2, 2), (2, 2)))
    n, c, h, w = (int(d) for d in pooled.ty.shape)
    flat = net.emit(relax.op.reshape(pooled, (n, c * h * w)))
    product = net.emit(relax.op.matmul(flat, net.const(c * h * w, 10)))
    logits = net.emit(relax.op.add(product, net.const(10)))
    return net.emit(relax.op.nn.softmax(logits, -1))


def shuffle(net: Net, x: Any) -> Any:
    """A grouped convolution, a channel shuffle and a depthwise convolution."""
    grouped = net.relu(net.conv(x, 24, 1, groups=3))
    n, c, h, w = (int(d) for d in grouped.ty.shape)
    split = net.emit(relax.op.reshape(grouped, (n, 3, c // 3, h, w)))
    turned = net.emit(relax.op.permute_dims(split, (0, 2, 1, 3, 4)))
    shuffled = net.emit(relax.op.reshape(turned, (n, c, h, w)))
    return net.conv(shuffled, 24, 3, groups=24)


def two_outputs(net: Net, x: Any, y: Any) -> Any:
    """A feature map that is both an output and an epilogue operand, and two inputs."""
    left = net.conv(x, 16)
    right = net.emit(relax.op.add(net.conv(y, 16), left))
    return net.emit(relax.Tuple([left, right]))


def split(net: Net, x: Any) -> Any:
    """A slice of channels with two readers, and slices that only a concat reads."""
    x = net.relu(net.conv(x, 29))
    half = net.emit(relax.op.strided_slice(x, [1], [3], [19]))
    branch = net.conv(half, 16, 1)
    first = net.emit(relax.op.strided_slice(branch, [1], [0], [8]))
    last = net.emit(relax.op.strided_slice(x, [1], [19], [29]))
    joined = net.emit(relax.op.concat([first, half, last], axis=1))
    return net.conv(joined, 16, 1)


def cross_stage(net: Net, x: Any) -> Any:
    """A detector's block: the later half of the channels goes on, and all are joined."""
    x = net.relu(net.conv(x, 32, 1))
    half = net.emit(relax.op.strided_slice(x, [1], [16], [32]))
    deeper = net.emit(relax.op.add(half, net.conv(half, 16)))
    joined = net.emit(relax.op.concat([x, half, deeper], axis=1))
    return net.conv(joined, 16, 1)


def pyramid(net: Net, x: Any) -> Any:
    """A coarse feature map that is resized twice, joined with finer ones; hard swish."""

    def swish(y: Any) -> Any:
        inner = net.emit(relax.op.clip(net.emit(relax.op.add(y, relax.const(3.0))), 0, 6))
        return net.emit(relax.op.multiply(net.emit(relax.op.multiply(y, inner)), sixth))

    fine, sixth = net.conv(x, 16), relax.const(1 / 6)
    y = fine
    for method in ("nearest_neighbor", "linear"):
        small = swish(net.emit(relax.op.nn.max_pool2d(y, (2, 2), (2, 2))))
        y = swish(net.conv(small, 16))
        large = net.emit(
            relax.op.image.resize2d(
                y,
                relax.ShapeExpr([9, 10]),
                layout="NCHW",
                method=method,
                coordinate_transformation_mode="asymmetric",
                rounding_method="floor" if method == "nearest_neighbor" else "",
            )
        )
        y = net.conv(net.emit(relax.op.concat([large, fine], axis=1)), 16, 1)
    return y


def normalised(net: Net, x: Any) -> Any:
    """Groups normalised, with an activation that a 1x1 convolution could apply, and channels."""
    x = net.conv(x, 24)
    affine = (net.const(24), net.const(24))
    x = net.emit(relax.op.nn.group_norm(x, *affine, 4, 1, [2, 3]))
    x = net.conv(net.emit(relax.op.nn.silu(x)), 19, 1)
    return net.conv(net.emit(relax.op.nn.layer_norm(x, net.const(19), net.const(19), [1])), 16, 1)


def response(net: Net, x: Any) -> Any:
    """Channels multiplied by their norms, relative to all norms, as ConvNeXt v2 has it."""
    x = net.relu(net.conv(x, 21))
    total = net.emit(relax.op.sum(net.emit(relax.op.multiply(x, x)), [2, 3], True))
    norm = net.emit(relax.op.sqrt(total))
    mean = net.emit(relax.op.mean(norm, [1], True))
    relative = net.emit(relax.op.divide(norm, mean))
    return net.conv(net.emit(relax.op.add(net.emit(relax.op.multiply(x, relative)), x)), 16, 1)


IMAGE = (1, 12, 9, 10)
NETWORKS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "residual": (residual, (IMAGE,)),
    "projection": (projection, (IMAGE,)),
    "inception": (inception, ((2, 12, 9, 10),)),
    "dense_block": (dense_block, ((1, 32, 6, 6),)),
    "excite": (excite, (IMAGE,)),
    "attend": (attend, (IMAGE,)),
    "preactivation": (preactivation, ((2, 19, 7, 9),)),
    "classifier": (classifier, ((3, 3, 11, 13),)),
    "shuffle": (shuffle, (IMAGE,)),
    "split": (split, (IMAGE,)),
    "cross_stage": (cross_stage, (IMAGE,)),
    "pyramid": (pyramid, (IMAGE,)),
    "normalised": (normalised, (IMAGE,)),
    "response": (response, (IMAGE,)),
    "two_outputs": (two_outputs, (IMAGE, IMAGE)),
}


def named(name: str, *, batch: int | None = None) -> tvm.IRModule:
    """Build one of `NETWORKS`, perhaps for another batch."""
    body, shapes = NETWORKS[name]
    return build(body, *((batch or first, *rest) for first, *rest in shapes))
