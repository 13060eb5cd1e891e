"""The class that ONNX's interface asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend

from neocpu.foundation.errors import UsageError
from neocpu.frontend.shapes.static_shapes import fix_inputs
from neocpu.frontend.shapes.structural_inputs import structural_inputs
from neocpu.frontend.source import read_model
from neocpu.onnx_backend.prepared_model import PreparedModel
from neocpu.onnx_backend.specialise import AnyArray


class NeoCPUBackend(Backend):  # type: ignore[misc]
    """neocpu as a backend of ONNX; `prepare` takes the options of `neocpu.compile`."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Return the model, ready to be compiled for the inputs of its first run.

        Parameters
        ----------
        model : onnx.ModelProto, path or bytes
        device : str
            ``CPU``.
        kwargs
            Options of `neocpu.compile`, such as ``threads`` and ``verify``.

        Raises
        ------
        UsageError
            The device is not a CPU.
        ModelError
            The model cannot be read.
        """
        if not cls.supports_device(device):
            raise UsageError(f"neocpu runs on 'CPU', not on '{device}'")
        return PreparedModel(read_model(model), kwargs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one operator: see `onnx.backend.base.Backend.run_node`.

        ``opset_version`` is by default the newest that onnx knows; other options are those of
        `neocpu.compile`. ``outputs_info`` is ignored.

        Raises
        ------
        UsageError
            The number of inputs is not the node's.
        NeoCPUError
            `neocpu.compile` refuses the node.
        """
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in node.input if name]
        given = [np.asarray(array) for array in inputs]
        if len(given) != len(names):
            raise UsageError(f"the node takes {len(names)} inputs, got {len(given)}")
        arrays = dict(zip(names, given, strict=True))
        values = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in arrays.items()
        ]
        results = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], node.op_type, values, results)
        domain = onnx.helper.make_opsetid(node.domain, version)
        model = onnx.helper.make_model(graph, opset_imports=[domain])
        fixed: dict[str, AnyArray] = {n: arrays.pop(n) for n in structural_inputs(model)}
        fix_inputs(model.graph, fixed)
        model = onnx.shape_inference.infer_shapes(model, check_type=True, data_prop=True)
        return cls.prepare(model, device, **kwargs).run(list(arrays.values()))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether a device is the CPU; ONNX knows only one."""
        return device in ("CPU", "CPU:0")
