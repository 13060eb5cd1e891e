"""Kernels of the built-in networks have no shortcomings, or have them with a reason.

Nothing is compiled to machine code: tests inspect the input of code generation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import needs
import numpy as np
import onnx
import pytest

import neocpu
from neocpu.building.parallel_codegen import OneAtATime
from neocpu.frontend.models import MODELS, build
from neocpu.quantiser.quantise import quantize
from neocpu.schedules.estimates.shortcomings import is_register_tile, shortcomings
from neocpu.schedules.estimates.work_count import count_work
from neocpu.schedules.operators.elementwise import schedule_function
from tests.neocpu.quantised_models import network, network_in_groups

TARGETS: Final = ("llvm -mcpu=znver4", "llvm -mcpu=haswell")

#: Shortcomings that kernels may have without a reason.
ACCEPTED: Final[Mapping[str, str]] = {
    r"fused_strided_slice2_transpose: gather": "SSD's heads to NHWC: 0.03 % of its run",
    r"fused_reshape2?_transpose1?: (gather|scalar)": "YOLO's anchors: 0.5 % of its run",
    r"concat\d*: gather": "YOLO's boxes have 5 numbers and more: 0.2 % of its run",
    r"fused_reshape\d?_transpose\d?_reshape\d?(_quantise\d)?: scalar": "ShuffleNet's channels in "
    "NCHW, whose quotients LLVM takes apart",
    r"gather_\d+: gather": "ShuffleNet's slices that begin within a block, 0.4 % of its run each",
    r"non_max_suppression: workspace": "what boxes are chosen of, within L2",
    r"softmax: scalar": "sums of rows of 21 numbers: 2 of its 56 µs",
    r"(gate|pool|resize)_\d+: scalar": "at the edges of rows, 5 % of the kernel at most",
    r"global_pool_\d+: workspace": "sums of each part of the image, some hundred bytes",
    r"fused_(quantise\d*_)?dequantise\d*_reshape\d*: (scalar|one thread)": "flattened for a "
    "dense layer, with quotients that LLVM takes apart: 0.03 % of VGG's run",
}


class PlannedError(Exception):
    """Ends a compilation once its kernels are known."""


def kernels_of(monkeypatch: pytest.MonkeyPatch, model: Any, **options: Any) -> tuple[Any, Any]:
    """Return the functions that a model becomes, and the CPU they are for."""
    found: list[Any] = []

    def start(_: OneAtATime, mod: Any, target: Any, workers: int) -> None:
        found.extend((mod, target))
        raise PlannedError

    monkeypatch.setattr(OneAtATime, "start", start)
    monkeypatch.setenv("NEOCPU_CACHE_DIR", "off")
    with pytest.raises(PlannedError):
        neocpu.compile(model, threads=2, verify=False, **options)
    monkeypatch.undo()
    mod, target = found
    return mod, target


def lacking(mod: Any, target: Any) -> list[str]:
    """Return kernels' shortcomings without a reason."""
    found = []
    for var, function in mod.functions_items():
        name = str(var.name_hint)
        if is_register_tile(name):
            continue
        scheduled = schedule_function(function, target)
        for one in shortcomings(scheduled, count_work(scheduled, target)):
            what = f"{name}: {one.kind}"
            if not one.reason and not any(re.fullmatch(each, what) for each in ACCEPTED):
                found.append(f"{what} ({one.detail})")
    return found


def in_integers(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Return a model quantised by one random sample."""
    path = folder / "float.onnx"
    onnx.save(model, path)
    rng = np.random.default_rng(0)
    samples = {}
    for each in model.graph.input:
        shape = [d.dim_value for d in each.type.tensor_type.shape.dim]
        samples[each.name] = rng.standard_normal(shape).astype(np.float32)
    return quantize(path, samples, threads=2).proto


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("make", [network, network_in_groups], ids=lambda make: make.__name__)
def test_kernels_of_small_networks_lack_nothing(monkeypatch, tmp_path, make, precision, target):
    """Layers have awkward sizes, and some have groups."""
    model = in_integers(make(), tmp_path) if precision == "int8" else make()
    options = {"precision": precision, "small": precision == "int8", "target": target}
    assert not lacking(*kernels_of(monkeypatch, model, **options))


@pytest.mark.slow
@pytest.mark.timeout(1200)  # to quantise the larger ones, on a busy machine
@pytest.mark.parametrize(
    "precision", ["fp32", "bf16", pytest.param("int8", marks=needs.everything())]
)
@pytest.mark.parametrize("name", needs.repeated(MODELS, set(MODELS) - {"mobilenet_v3_large"}))
def test_kernels_of_networks_lack_nothing(monkeypatch, tmp_path, name, precision):
    model = build(name)
    if precision == "int8":
        model = in_integers(model, tmp_path)
    options = {"precision": precision, "target": TARGETS[0]}
    assert not lacking(*kernels_of(monkeypatch, model, **options))
