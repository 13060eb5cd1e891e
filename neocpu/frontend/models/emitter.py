"""Windows, and the nodes and seeded weights of one network in a single ``ModelProto``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from neocpu.foundation.errors import UsageError

# The same as the frontend's: newer ones add nothing here, and fewer engines read them.
OPSET: Final = 22
IR_VERSION: Final = 10
QUADRATURE_POINTS: Final = 32
UNKNOWN: Final = -1  # the number of detections, which only the run decides
Extents = int | tuple[int, int]  # the height and width, or one number for both


@dataclass(frozen=True, slots=True)
class Windows:
    """The positions to which a kernel is applied; each field is (height, width)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    @classmethod
    def of(cls, kernel: Extents, stride: Extents, padding: Extents) -> Windows:
        """Return windows from extents that may be single numbers."""
        return cls(*(pair(extents) for extents in (kernel, stride, padding)))

    def over(self, image: tuple[int, int], ceil_mode: bool = False) -> tuple[int, ...]:
        """Return the number of windows of an image, by height and width, each at least 1."""
        counts = []
        for size, kernel, stride, padding in zip(
            image, self.kernel, self.stride, self.padding, strict=True
        ):
            span = size + 2 * padding - kernel
            count = (ceil(span / stride) if ceil_mode else span // stride) + 1
            # The last window must not lie in the padding alone.
            if ceil_mode and (count - 1) * stride >= size + padding:
                count -= 1
            if count < 1:
                raise UsageError(
                    f"the image is too small: a window of {kernel} does not fit {size} pixels"
                )
            counts.append(count)
        return tuple(counts)


def pair(extents: Extents) -> tuple[int, int]:
    """Return the height and width."""
    return extents if isinstance(extents, tuple) else (extents, extents)


def adaptive_windows(size: int, count: int) -> NDArray[np.float32]:
    """Return the ``(count, size)`` matrix of PyTorch's adaptive average over ``size`` pixels."""
    windows = np.zeros((count, size), np.float32)
    for i in range(count):
        start, stop = i * size // count, -(-(i + 1) * size // count)
        windows[i, start:stop] = 1 / (stop - start)
    return windows


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor under construction."""

    name: str
    shape: tuple[int, ...]  # (N, C, H, W) or (N, C); `UNKNOWN` where data decide
    spread: float = 1.0  # estimated mean square of a part symmetric about zero, which a ReLU halves
    rectified: float = 0.0  # that of a part that has passed a ReLU; both scale weights
    dtype: int = TensorProto.FLOAT  # ONNX's code

    @property
    def batch(self) -> int:
        return self.shape[0]

    @property
    def channels(self) -> int:
        return self.shape[1]

    @property
    def image(self) -> tuple[int, int]:
        """The height and width of a feature map."""
        height, width = self.shape[2:]
        return height, width

    @property
    def power(self) -> float:
        """An estimate of the mean square."""
        return self.spread + self.rectified


class Emitter:
    """Collects nodes and seeded weights; its subclass defines the layers.

    Weights go straight into the model, so that they exist once: ``helper.make_graph`` and
    ``make_model`` would copy all of them twice more. The input is named ``input``.
    """

    def __init__(self, name: str, input_shape: Sequence[int], seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._model = onnx.ModelProto(ir_version=IR_VERSION, producer_name="neocpu")
        self._model.opset_import.append(helper.make_opsetid("", OPSET))
        self._graph = self._model.graph
        self._graph.name = name
        self._graph.input.append(
            helper.make_tensor_value_info("input", TensorProto.FLOAT, input_shape)
        )
        self.input = Value("input", tuple(input_shape))

    def finish(self, outputs: Value | Mapping[str, Value]) -> onnx.ModelProto:
        """Return the model, with one output, ``output``, or several by name, and end building."""
        named = {"output": outputs} if isinstance(outputs, Value) else outputs
        new_names = {value.name: name for name, value in named.items()}
        assert len(new_names) == len(named), "one value has two names"
        produced: set[str] = set()
        for node in self._graph.node:
            for names in (node.input, node.output):
                names[:] = [new_names.get(name, name) for name in names]
            produced.update(node.output)
        assert produced >= named.keys()
        for name, value in named.items():
            shape = ["detections" if extent == UNKNOWN else extent for extent in value.shape]
            self._graph.output.append(helper.make_tensor_value_info(name, value.dtype, shape))
        return self._model

    def node(
        self,
        op: str,
        inputs: Sequence[Value | str],
        name: str,
        shape: Sequence[int],
        *,
        spread: float = 1.0,
        rectified: float = 0.0,
        dtype: int = TensorProto.FLOAT,
        **attributes: Any,
    ) -> Value:
        """Add a node of one output, see `Value`; it has the layer's name, as PyTorch's."""
        path = "/" + name.replace(".", "/") + f"/{op}"
        value = Value(f"{path}_output_0", tuple(shape), spread, rectified, dtype)
        names = [x.name if isinstance(x, Value) else x for x in inputs]
        self._graph.node.append(helper.make_node(op, names, [value.name], path, **attributes))
        return value

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Add a weight or constant and return its name."""
        tensor = self._graph.initializer.add()
        tensor.name = name
        tensor.dims.extend(array.shape)
        tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        data = array.tobytes()
        del array  # VGG's largest weight has 411 MB: no third copy while protobuf makes its own
        tensor.raw_data = data
        return name

    def normal(self, shape: Sequence[int], mean_square: float) -> NDArray[np.float32]:
        """Return seeded, normally distributed weights of mean zero."""
        values = self._rng.standard_normal(tuple(shape), np.float32)
        values *= np.float32(mean_square**0.5)
        return values

    def uniform(self, shape: Sequence[int], low: float, high: float) -> NDArray[np.float32]:
        """Return seeded, uniformly distributed weights between two bounds."""
        return self._rng.uniform(low, high, tuple(shape)).astype(np.float32)


def gaussian_power(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]], variance: float
) -> float:
    """Return the mean square of a function of a normal variable of mean zero."""
    points, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_POINTS)
    values = function(points * variance**0.5)
    return float(weights @ values**2 / weights.sum())
