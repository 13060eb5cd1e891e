"""Quantise networks in many ways, and compare each compiled model with ONNX Runtime.

    pip install nncf torch torchvision torchao
    python -m tests.precision.sweep [--networks A,B] [--quantisers A,B] [--image 64]

Networks are the built-in ones, or ``torchvision.NAME``, with random weights.

The reference is ONNX Runtime without its optimisations, which computes what ONNX defines. Two
things are compared:

layers
    Every quantised tensor, in steps of its scale, with ``--precision int8``. All layers compute
    from the integers that the reference found (see `tests.precision.visible_layers`). 99.9 % of a
    tensor's elements have to be within one step, and all within two. The sweep prints the elements
    that are one step off, and how many of these are no ties: ONNX Runtime's own real number is
    further than a fiftieth of a step from the middle between two integers.
network
    The outputs of the unchanged model, compiled as by a user: verified, and with precision auto.

A model counts as refused if compiling says so in one line; any other error is a failure.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import neocpu
from neocpu.foundation.errors import NeoCPUError
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.plan.plan import Plan
from tests.precision.quantisers import QUANTISERS
from tests.precision.visible_layers import Quantised, cut, make_visible, with_outputs, with_shapes

NETWORKS = (
    "squeezenet1_0,resnet18,mobilenet_v2,shufflenet_v2_x1_0,mobilenet_v3_large,efficientnet_b0"
)
TIE = 0.02
"""The distance, in steps, within which a real number counts as midway between two integers."""

Feeds = Mapping[str, np.ndarray]


@dataclass(slots=True)
class Layers:
    """The differences of quantised tensors, each computed from the reference's integers.

    Elements are one step off or more; ``worst_share`` is the largest share of a tensor's that are
    more. ``no_ties`` are one step off although ONNX Runtime's real number is near its integer.
    """

    tensors: int = 0
    elements: int = 0
    one_off: int = 0
    two_off: int = 0
    no_ties: int = 0
    worst_share: float = 0.0
    furthest: float = 0.0
    worst: str = ""

    def add(self, tensor: Quantised, got: np.ndarray, wanted: Feeds) -> None:
        steps = np.abs(tensor.steps(got.astype(np.float64) - wanted[tensor.visible]))
        off, far = steps > 0.5, steps > 1.5
        self.tensors += 1
        self.elements += steps.size
        self.one_off += int(off.sum())
        self.two_off += int(far.sum())
        self.worst_share = max(self.worst_share, float(far.mean()))
        if off.any() and tensor.real and tensor.visible != tensor.name:
            scaled = tensor.steps(wanted[tensor.real])[off]
            self.no_ties += int((np.abs(scaled - np.floor(scaled) - 0.5) > TIE).sum())
        if steps.max(initial=0.0) > self.furthest:
            self.furthest, self.worst = float(steps.max()), tensor.name

    @property
    def agree(self) -> bool:
        """Whether each tensor is within the bounds."""
        return self.worst_share <= 1e-3 and self.furthest <= 2.5


@dataclass(slots=True)
class Case:
    network: str
    quantiser: str
    image: int
    outcome: str = "refused"
    message: str = ""
    output_error: float = 0.0
    convolutions: str = ""
    left_over: int = 0
    seconds: float = 0.0
    layers: Layers = field(default_factory=Layers)


def reference(model: onnx.ModelProto, feeds: Feeds) -> dict[str, np.ndarray]:
    """Return the outputs that ONNX defines."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def images(size: int, count: int, seed: int) -> list[np.ndarray]:
    """Return smooth noise, in which neighbours are similar as in pictures."""
    rng = np.random.default_rng(seed)
    coarse = rng.standard_normal((count, 3, size // 4, size // 4)).repeat(4, 2).repeat(4, 3)
    noise = 0.3 * rng.standard_normal((count, 3, size, size))
    return list((coarse + noise).astype(np.float32)[:, None])


def compare_layers(model: onnx.ModelProto, feeds: Feeds, precision: str) -> tuple[Layers, dict]:
    visible, tensors = make_visible(model)
    names = [n for t in tensors for n in (*t.given, t.real) if n and n not in feeds]
    wanted = reference(with_outputs(visible, names), feeds) | dict(feeds)
    given = {f"{n}_given": wanted[n] for t in tensors for n in t.given}
    made = cut(visible, tensors, wanted)
    found = Layers()
    small = precision == "int8"
    with neocpu.compile(made, precision=precision, small=small, verify=False) as compiled:
        got = compiled.module().run({**feeds, **given})
        plan = compiled.plan
    for tensor in tensors:
        found.add(tensor, got[tensor.visible], wanted)
    return found, plan


def compare_outputs(model: onnx.ModelProto, feeds: Feeds) -> tuple[float, Plan]:
    """Return the difference of the network's outputs, relative to their norm, and the plan."""
    wanted = reference(model, feeds)
    with neocpu.compile(with_shapes(model, wanted), precision="auto") as compiled:
        got = compiled.module().run(dict(feeds))
        plan = compiled.plan
    return max(
        float(np.linalg.norm((got[n] - wanted[n]).ravel()) / np.linalg.norm(wanted[n].ravel()))
        for n in wanted
    ), plan


def run_case(network: str, quantiser: str, size: int, whole: bool) -> Case:
    case, begun = Case(network, quantiser, size), time.monotonic()
    try:
        model = QUANTISERS[quantiser](network, images(size, 4, seed=0))
    except Exception as error:
        case.outcome, case.message = "not made", f"{type(error).__name__}: {error}"[:300]
        return case
    feeds = {model.graph.input[0].name: images(size, 1, seed=1)[0]}
    try:
        import_relax(load_model(model))  # or ONNX Runtime would be the first to fail
        case.layers, plan = compare_layers(model, feeds, "int8")
        convolutions = [op for op in plan.ops if op.kind == "conv2d"]
        integers = sum(op.precision == "int8" for op in convolutions)
        case.convolutions = f"{integers}/{len(convolutions)}"
        if whole:
            case.output_error, plan = compare_outputs(model, feeds)
            case.left_over = sum(op.kind == "quantise" for op in plan.ops)
        case.outcome = "agrees" if case.layers.agree else "differs"
    except NeoCPUError as error:
        case.message = str(error)
    except Exception as error:
        case.outcome, case.message = "failed", f"{type(error).__name__}: {error}"
        traceback.print_exc()
    case.seconds = round(time.monotonic() - begun, 1)
    return case


def _line(case: Case) -> str:
    layers = case.layers
    return (
        f"{case.network:20} {case.quantiser:24} {case.image:3} px {case.outcome:8} "
        f"tensors {layers.tensors:4} one off {layers.one_off}/{layers.elements} "
        f"(no ties {layers.no_ties}), more {layers.two_off}, "
        f"furthest {layers.furthest:.2f} {layers.worst[-40:]}; "
        f"integers {case.convolutions}; output {case.output_error:.1e}; "
        f"left {case.left_over}; {case.seconds:.0f} s {case.message[:200]}"
    )


def totals(cases: Sequence[Mapping[str, Any]]) -> str:
    """Return the totals of the lines of ``--results``."""
    outcomes = Counter(case["outcome"] for case in cases)
    layers = [case["layers"] for case in cases]
    tensors, elements, one, more, no_ties = (
        sum(each[key] for each in layers)
        for key in ("tensors", "elements", "one_off", "two_off", "no_ties")
    )
    said = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    return (
        f"{len(cases)} models of {len({case['network'] for case in cases})} networks: {said}; "
        f"{tensors} tensors, {elements} elements, {one} a step off (no ties: {no_ties}), "
        f"{more} further"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases that ``--results`` lacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default=NETWORKS)
    parser.add_argument("--quantisers", default="")
    parser.add_argument("--image", type=int, default=64)
    parser.add_argument("--layers-only", action="store_true", help="leave the whole network out")
    parser.add_argument("--results", type=Path, help="JSON lines, which a later call goes on with")
    given = parser.parse_args(arguments)

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    done = set()
    if given.results and given.results.exists():
        lines = map(json.loads, given.results.read_text().splitlines())
        done = {(each["network"], each["quantiser"], each["image"]) for each in lines}
    for quantiser in given.quantisers.split(",") if given.quantisers else QUANTISERS:
        for network in given.networks.split(","):
            if (network, quantiser, given.image) in done:
                continue
            case = run_case(network, quantiser, given.image, not given.layers_only)
            print(_line(case), flush=True)
            if given.results:
                with given.results.open("a") as stream:
                    stream.write(json.dumps(asdict(case)) + "\n")
    if given.results:
        print(totals([json.loads(line) for line in given.results.read_text().splitlines()]))


if __name__ == "__main__":
    main()
