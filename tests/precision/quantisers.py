"""Quantisers of ONNX Runtime, NNCF and PyTorch, with the options they are used with."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from neocpu.frontend import models

Images: TypeAlias = Sequence[np.ndarray]
Maker: TypeAlias = Callable[[str, Images], onnx.ModelProto]
"""Quantise a network by name, on images; it is built for their size."""
TORCHVISION: Final = "torchvision."
"""The prefix that selects torchvision's network instead of the built-in one."""

_U8, _S8 = QuantType.QUInt8, QuantType.QInt8
_U8S8: Final = {"activation_type": _U8, "weight_type": _S8}
_DEDICATED: Final = {"ActivationSymmetric": True, "DedicatedQDQPair": True}
# Sums of ONNX Runtime's own integer kernels saturate where a CPU has no VNNI, unless one operand
# is small: their results then differ from ONNX's definition.
_OPERATORS: Final = {"quant_format": QuantFormat.QOperator, "reduce_range": True, **_U8S8}


class _Reader(CalibrationDataReader):
    def __init__(self, name: str, images: Images) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = iter([{name: each} for each in images])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def _built(name: str, images: Images, opset: int = 17) -> onnx.ModelProto:
    """Return a built-in network, or torchvision's by its prefix, in ``opset``."""
    if name.startswith(TORCHVISION):
        return _exported(_torch_network(name).eval(), images, opset)
    model = models.build(name, image=images[0].shape[2:])
    model.opset_import[
        0
    ].version = opset  # the networks' operators are the same in all opsets from 11 on
    return model


def _prepared(name: str, images: Images, opset: int, folder: Path) -> Path:
    """Return the network with batch normalisation folded into the weights."""
    given, path = folder / "given.onnx", folder / "prepared.onnx"
    onnx.save(_built(name, images, opset), given)
    quant_pre_process(given, path, skip_symbolic_shape=True)
    return path


def _static(opset: int = 17, *, prepare: bool = True, **options: object) -> Maker:
    def make(name: str, images: Images) -> onnx.ModelProto:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "made.onnx"
            model = (
                _prepared(name, images, opset, Path(folder)) if prepare else _built(name, images)
            )
            quantize_static(model, path, _Reader("input", images), **options)
            return onnx.load(path)

    return make


def _dynamic(**options: object) -> Maker:
    def make(name: str, images: Images) -> onnx.ModelProto:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "made.onnx"
            quantize_dynamic(_prepared(name, images, 17, Path(folder)), path, **options)
            return onnx.load(path)

    return make


def _nncf(**options: str) -> Maker:
    def make(name: str, images: Images) -> onnx.ModelProto:
        import nncf

        kinds = {"preset": nncf.QuantizationPreset, "target_device": nncf.TargetDevice}
        chosen = {key: kinds[key][value] for key, value in options.items()}
        data = nncf.Dataset([{"input": each} for each in images])
        return nncf.quantize(_built(name, images), data, subset_size=len(images), **chosen)

    return make


def _torch_network(name: str) -> Any:
    import torch
    import torchvision

    torch.manual_seed(0)
    # Without it GoogLeNet and Inception take minutes to draw their weights.
    extra = {"init_weights": False} if name.endswith(("googlenet", "inception_v3")) else {}
    return torchvision.models.get_model(name.removeprefix(TORCHVISION), weights=None, **extra)


def _exported(network: Any, images: Images, opset: int = 17) -> onnx.ModelProto:
    """Export a network by PyTorch's older exporter, which supports fake quantisation."""
    import torch

    stream, example = io.BytesIO(), (torch.from_numpy(images[0]),)
    torch.onnx.export(
        network, example, stream, dynamo=False, opset_version=opset, input_names=["input"]
    )
    return onnx.load_from_string(stream.getvalue())


def _exported_graph(quantiser: str) -> Maker:
    """Quantise exported graphs by PyTorch, with a ``quantiser`` of torchao."""

    def make(name: str, images: Images) -> onnx.ModelProto:
        import importlib

        import torch
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        place = "torchao.quantization.pt2e.quantizer"
        module = importlib.import_module(f"{place}.{quantiser}_inductor_quantizer")
        maker = getattr(module, f"{quantiser.capitalize()}InductorQuantizer")
        config = getattr(module, f"get_default_{quantiser}_inductor_quantization_config")()
        example = (torch.from_numpy(images[0]),)
        graph = torch.export.export(_torch_network(name).eval(), example).module()
        prepared = prepare_pt2e(graph, maker().set_global(config))
        for each in images:
            prepared(torch.from_numpy(each))
        program = torch.onnx.export(
            convert_pt2e(prepared), example, dynamo=True, opset_version=18, verbose=False,
            input_names=["input"],
        )  # fmt: skip
        return program.model_proto

    return make


def _fake_quantised(per_channel: bool) -> Maker:
    """Quantise by fake quantisation in the modules, as after training, and the older exporter."""

    def make(name: str, images: Images) -> onnx.ModelProto:
        import torch
        from torch.ao.quantization import FakeQuantize, MinMaxObserver, PerChannelMinMaxObserver
        from torch.nn.utils import parametrize

        network = _torch_network(name).eval()
        scaled = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
        observer = PerChannelMinMaxObserver if per_channel else MinMaxObserver
        scheme = torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric
        signed = {"quant_min": -128, "quant_max": 127, "dtype": torch.qint8, "qscheme": scheme}
        for module in scaled:
            parametrize.register_parametrization(module, "weight", FakeQuantize(observer, **signed))
            module.add_module("before", FakeQuantize(MinMaxObserver, quant_min=0, quant_max=255))
            module.register_forward_pre_hook(lambda m, args: (m.before(args[0]),))
        with torch.no_grad():
            for each in images:
                network(torch.from_numpy(each))
        network.apply(torch.ao.quantization.disable_observer)
        return _exported(network, images)

    return make


QUANTISERS: Final[Mapping[str, Maker]] = MappingProxyType(
    {
        "ort-u8s8": _static(**_U8S8),
        "ort-u8s8-channel": _static(**_U8S8, per_channel=True),
        "ort-s8s8-channel": _static(activation_type=_S8, weight_type=_S8, per_channel=True),
        "ort-u8u8": _static(activation_type=_U8, weight_type=_U8),
        "ort-reduced": _static(**_U8S8, per_channel=True, reduce_range=True),
        "ort-symmetric-dedicated": _static(
            activation_type=_S8, weight_type=_S8, extra_options=_DEDICATED
        ),
        "ort-operators": _static(**_OPERATORS),
        "ort-operators-channel": _static(**_OPERATORS, per_channel=True),
        "ort-operators-u8u8": _static(
            quant_format=QuantFormat.QOperator, activation_type=_U8, weight_type=_U8
        ),
        "ort-entropy": _static(**_U8S8, calibrate_method=CalibrationMethod.Entropy),
        "ort-percentile": _static(**_U8S8, calibrate_method=CalibrationMethod.Percentile),
        "ort-weights-rounded": _static(
            **_U8S8, per_channel=True, extra_options={"AddQDQPairToWeight": True}
        ),
        "ort-weights-asymmetric": _static(
            activation_type=_S8, weight_type=_S8, extra_options={"WeightSymmetric": False}
        ),
        "ort-opset-10": _static(10, **_U8S8),
        "ort-opset-11": _static(11, **_U8S8),
        "ort-opset-13": _static(13, **_U8S8, per_channel=True),
        "ort-opset-21": _static(21, **_U8S8, per_channel=True),
        "ort-unprepared": _static(prepare=False, **_U8S8, per_channel=True),
        "ort-u16s8": _static(activation_type=QuantType.QUInt16, weight_type=_S8),
        "ort-s16s16": _static(21, activation_type=QuantType.QInt16, weight_type=QuantType.QInt16),
        "ort-u8s4": _static(21, activation_type=_U8, weight_type=QuantType.QInt4),
        "ort-dynamic": _dynamic(weight_type=_U8),
        "ort-dynamic-reduced": _dynamic(weight_type=_S8, per_channel=True, reduce_range=True),
        "nncf": _nncf(),
        "nncf-mixed": _nncf(preset="MIXED"),
        "nncf-any": _nncf(target_device="ANY"),
        "torch-x86": _exported_graph("x86"),
        "torch-arm": _exported_graph("arm"),
        "torch-fake-channel": _fake_quantised(per_channel=True),
        "torch-fake-tensor": _fake_quantised(per_channel=False),
    }
)
"""Quantisers by name; the package before the first hyphen has to be installed."""
