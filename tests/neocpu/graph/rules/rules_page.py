"""docs/passes.md: every rule and its gain on a network; ``make docs`` writes it.

A network's figures are of its simplified graph, with and without the rule.
"""

from __future__ import annotations

import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Final

import onnx
import tvm
from tvm import relax
from tvm.ir import GenericConst

from neocpu.frontend import models
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.rule import FunctionRule, GraphRule, LocalRule
from neocpu.graph.simplify import simplify
from neocpu.graph.table import RULES
from neocpu.ir.expressions import is_op, op_name, static_shape
from neocpu.ir.uses import bindings, definitions, used_vars
from neocpu.planning.extract import extract
from tests.light_models import light_model
from tests.neocpu.graph.rules.cheaper_graphs import CHEAPER
from tests.neocpu.graph.rules.planned_graphs import PLANNED, PLANNED_CONSTANTS
from tests.neocpu.graph.rules.small_graphs import GONE, IMPORT, LESS, small_model

ROOT: Final = Path(__file__).parents[4]
PAGE: Final = ROOT / "docs" / "passes.md"

#: The first of several networks with the same gain is named.
NETWORKS: Final[Mapping[str, Callable[[], onnx.ModelProto]]] = {
    **{
        name: lambda name=name: models.build(name)
        for name in (
            *("resnet50", "densenet121", "inception_v3", "mobilenet_v2", "mobilenet_v3_large"),
            *("efficientnet_b0", "shufflenet_v2_x1_0", "squeezenet1_0", "unet", "yolov3_tiny"),
            "ssd_resnet50",
        )
    },
    **{
        f"onnx's {name}": lambda name=name: light_model(name)
        for name in ("shufflenet", "squeezenet", "inception_v2", "densenet121", "resnet50")
    },
    **{
        f"“{name}”": lambda nodes=nodes: small_model(nodes)
        for name, (nodes, *_) in (GONE | LESS | CHEAPER).items()
    },
    **{
        f"“{name}”": lambda nodes=nodes: small_model(nodes, PLANNED_CONSTANTS)
        for name, (nodes, _) in PLANNED.items()
    },
}

_HEAD: Final = """\
# Rules for graphs

Before anything is planned, an imported graph is simplified by these rules, in this order, again and
again until none applies ([architecture.md](architecture.md)). `neocpu explain` says how often each
was applied; `neocpu compile --disable-rule NAME,…` leaves some out, and `neocpu compile
--list-rules` lists them. Each is an object in the file that is named, below `neocpu/graph/`, whose
docstring shows the graph before and after it; `table.py` there has them in order. `make docs`
writes this page.

The last column compares the simplified graph of a network without the rule and with it: operators,
multiply-adds, bytes that operators write (a concatenation counts only the bytes that it adds to the
one that it continues), or constants that kernels read (M: millions). Where these are equal, it
compares kernels (operators that a plan fuses count once), kernels that TVM schedules because a plan
has no choices for them, or bytes of feature maps that such kernels read or write in the model's
layout. The networks are the built-in ones and those in the onnx package; where none of them fires a
rule, the figure is of the small graph “in quotes” in `tests/neocpu/graph/rules/`.

| rule | kind | file | what it does | brings |
|---|---|---|---|---|
"""
_EXPORTED: Final = """
## On exported networks

As timm, torchvision, transformers and Ultralytics define them and PyTorch exports them
(`tests/zoo/export.py` writes them with random weights), on one thread of a Zen 5, compiled with the
rule and without it; medians of interleaved runs, in the calling thread's time.

| network | rule | multiply-adds | takes without it |
|---|---|---|---|
| mobileone_s0 | `sum-convolutions` | 1,052 → 275 M | 3.5 times as long |
| SegformerForSemanticSegmentation | `project-before-concat` | 1,326 → 777 M | 1.33 |
| repvgg_a0 | `sum-convolutions` | 1,513 → 1,362 M | 1.27 |
| densenet121 | `pool-first` | 2,834 → 2,603 M | 1.09 |
| repghostnet_050 | `sum-convolutions` | 43 M | 1.09 |
| vit_tiny_patch16_224 | `slice-before` | 1,254 → 1,174 M | 1.07 |
| convnextv2_atto | `normalise-channels` | 547 M | 1.05 |
| yolo11n at 640x640 | `project-before-concat` | 3,271 → 3,193 M | 1.04 |
| mobilenet_v3_large | hard swish of `canonicalize-activations` | 217 M | 1.04 |
| vit_tiny_patch16_224 of opset 16 | `name-normalisations` | 1,174 M | 1.04 |
| fastvit_t8 | `sum-convolutions` | 690 → 685 M | 1.03 |
| inception_v3 | `pool-last` | 5,713 M | 1.01 |
| lraspp_mobilenet_v3_large | `upsample-last` | 156 → 155 M | 1.01 |
| two layers of BiFPN, 64 channels | `sum-of-concat` | as many | 1.7 times as long |
| ecaresnet26t | `keep-pixel-axes` | as many | 1.01 |
| LSTMCell of 192 units, 32 steps | `name-cells` | 8 M | 2.3 times as long |
| GRUCell of 192 units, 32 steps | `name-cells` | 6 M | 2.1 times as long |
| four 3x3 convolutions, GroupNorms and ReLUs | `name-group-norms` | 468 M | 1.21 |
| swin_v2_t | `name-norms`, `scale-queries` | as many | 1.04 |
| swinv2_cr_tiny_224 | `name-norms` | as many | 1.04 |
| xcit_nano_12_p16_224 | `name-norms` | as many | 1.01 |

Rules without a figure of a network above or in this table are needed by blocks of networks
(`tests/neocpu/graph/rules/test_from_onnx.py` has most of them): `drop-pool` by the ends of
AlexNet and VGG, `drop-slice` and `merge-slices` by Swin Transformers (padding that is cut off,
patches that are merged), `concat-of-slices` and `split-channels` by YOLOv8, `slice-of-pad` by the
onnx package's AlexNet and Inception, `slice-of-concat` and `eliminate-common-subexpressions` by
the face detector RFB-320, `activate-first` by YuNet, `expand-before` and `sink-squeezes` by
ECA-Net, `keep-frames` by video ResNets, `move-quantisation` by every quantised network,
`scale-before` by LeViT, `scale-through-views` by LinkNet, `scale-through-concat` by MixNet,
`scale-normalisations` by GroupNorm as PyTorch exports it, `reduce-first` by VoVNet, `factor-sums`
by ConvNeXt V2, `cancel-layouts` by ConvNeXt, `weights-first` by YOLO11, `order-pixel-shuffles` by
Swin2SR. A rule that no exported network needs is no rule.

What was measured to bring nothing is no rule: dense layers as 1x1 convolutions of their rows
(equal, 221 to 255 GFLOP/s either way); 1x1 convolutions of one pixel as dense layers (equal, but
between 960 and 240 channels, where the dense layer is 1.2 times as fast); strided convolutions of
pixels in place of smaller ones of pixels moved into channels, as in YOLOv5's stem (equal at 2x2
pixels, 2.5 times as long at 4x4); `x * (1 + g)` for `x + x * g`, as ConvNeXt V2 normalises
responses, in the packing of the 1x1 convolution that reads it (equal within a hundredth).

Small independent kernels are run side by side in one launch where that is predicted to save a
tenth of what they take ([decisions.md](decisions.md)): on many threads. On two a launch and its
barrier take 0.4 µs on a Zen 5 (a chain of 200 depthwise convolutions of 9,216 elements, 0.64 µs
each on one thread and 0.70 on two), and of the 33 kernels of lcnet_050 and the 58 of
mobilenet_v3_large one and two could share another's: at most a thousandth of a run.

What is stitched through a buffer of a kernel's own instead of written is no graph rule but a
kernel: attention, whose scores stay in L1, also those of heads that talk to each other; layer, RMS,
L2 and channel normalisations with what follows them; the mean and both layers of squeeze and
excitation, or the mean and the convolution along channels of ECA; a gate, or a batch normalisation
and its activation, in the packing of a 1x1 convolution; sums of weighted maps and what activates
them, as BiFPN has them; layers of LSTM and GRU.
"""
_IMPORT: Final = """
## Gone before

{gone}

Einsum becomes a matrix product with transposes and reshapes
(`neocpu/frontend/expansions/einsum.py`). Constants are folded whatever the operator, and dead
branches and unused outputs dropped, by ONNX's own optimizer (`neocpu/frontend/simplify_onnx.py`);
zeros padded before a convolution or an average pooling become its attribute
(`neocpu/frontend/rewrites.py`). Reshapes that are left are views: no kernel computes them, before a
dense layer or after a global pooling or elsewhere.
"""


@dataclass(frozen=True, slots=True)
class Size:
    """The work of a simplified graph, and of its plan if one was asked for."""

    operators: int
    products: int
    written: int
    constants: int
    kernels: int = 0
    generic: int = 0
    plain: int = 0


def size_of(mod: tvm.IRModule, *, planned: bool = False) -> Size:
    """Return the size: operators, multiply-adds, bytes written, and constants read.

    Of its plan it has the kernels, those that TVM schedules, and bytes of feature maps that
    must be as the model has them.
    """
    values = [each.value for each in bindings(mod["main"]) if op_name(each.value) is not None]
    constants = [arg for call in values for arg in call.args if isinstance(arg, GenericConst)]
    kept = sum(len(arg.ty.shape.values) > 0 for arg in constants)
    plan = _planned(mod) if planned else ()
    return Size(len(values), sum(map(_products, values)), _written(mod), kept, *plan)


def _planned(mod: tvm.IRModule) -> tuple[int, int, int]:
    network = extract(mod)
    ours = (*network.ops, *network.dense, *network.products)
    known = {op.result for op in ours}.union(*(op.absorbed for op in ours))
    known = known.union(*(tokens.absorbed for tokens in network.tokens.values()))
    generic = sum(
        op_name(each.value) not in (None, "relax.reshape") and each.var not in known
        for each in bindings(mod["main"])
    )
    plain = 4 * sum(map(math.prod, network.nchw_reads.values()))
    return len(ours) + generic, generic, plain


def _products(call: relax.Expr) -> int:
    if not is_op(call, "relax.nn.conv2d", "relax.matmul"):
        return 0
    result, weights = static_shape(call), static_shape(call.args[1])
    assert result is not None
    assert weights is not None
    each = weights[-2] if is_op(call, "relax.matmul") else math.prod(weights[1:])
    return math.prod(result) * each


def _written(mod: tvm.IRModule) -> int:
    """Return the bytes of results; a concatenation counts only what it adds to another."""
    known = definitions(mod["main"])
    made = [value for value in known.values() if op_name(value) not in (None, "relax.reshape")]
    continued = [
        each
        for value in made
        if is_op(value, "relax.concat")
        for each in used_vars(known.get(value.args[0], value.args[0]))
        if is_op(known.get(each), "relax.concat")
    ]
    return 4 * (sum(map(_elements, made)) - sum(map(_elements, continued)))


def _elements(value: relax.Expr) -> int:
    shape = static_shape(value)
    return 0 if shape is None else math.prod(shape)


def sizes(network: str) -> tuple[Size, dict[str, Size]]:
    """Return a network's size with all rules, and without each of those that were applied."""
    imported = import_relax(load_model(NETWORKS[network]()))
    fired: Counter[str] = Counter()
    size = partial(size_of, planned=network.startswith("“"))
    whole = size(simplify(imported, fired=fired))
    disabled = [rule.name for rule in RULES if fired[rule.name] and not rule.required]
    return whole, {name: size(simplify(imported, {name})) for name in disabled}


_MEASURES: Final = {
    "constants": "constants in memory",
    "kernels": "kernels",
    "generic": "kernels that TVM schedules",
    "plain": "bytes in no layout of ours",
}
"""Attributes of `Size` that a rule may reduce when it saves no operators, products or bytes."""


def effect(network: str, without: Size, whole: Size) -> str:
    """Return the gain of a rule on a network, in words; empty if there is none."""
    parts = []
    if without.operators > whole.operators:
        parts.append(f"{without.operators} → {whole.operators} operators")
    if without.products > whole.products:
        parts.append(f"{_change(without.products, whole.products)}multiply-adds")
    if not parts and without.written > whole.written:
        parts.append(f"{_change(without.written, whole.written)}bytes")
    for attribute, what in _MEASURES.items():
        before, after = (getattr(size, attribute) for size in (without, whole))
        if not parts and before > after:
            parts.append(f"{before:,} → {after:,} {what}")
    return f"{network}: {', '.join(parts)}" if parts else ""


def _change(before: int, after: int) -> str:
    """Return two numbers, in millions if both are that large, and a space."""
    if min(before, after) < 1e6:
        return f"{before:,} → {after:,} "
    return f"{before / 1e6:,.2f} → {after / 1e6:,.2f} M "


def _gain(without: Size, whole: Size) -> float:
    """Return how much larger a graph is without a rule."""
    pairs = zip(astuple(without), astuple(whole), strict=True)
    return max(((before - after) / max(before, 1) for before, after in pairs), default=0.0)


def best_effects() -> dict[str, str]:
    """Return each rule's gain on the network it helps most; real networks come first."""
    found: dict[str, tuple[bool, float, str]] = {}
    for network in NETWORKS:
        whole, without = sizes(network)
        for name, size in without.items():
            text = effect(network, size, whole)
            candidate = (not network.startswith("“"), _gain(size, whole), text)
            if text and (name not in found or candidate[:2] > found[name][:2]):
                found[name] = candidate
    return {name: text for name, (_, _, text) in found.items()}


def file_of(rule: GraphRule) -> str:
    """Return the file that a rule's function is in."""
    assert isinstance(rule, LocalRule | FunctionRule)
    function = rule.apply if isinstance(rule, LocalRule) else rule.rewrite
    path = Path(inspect.getfile(function)).resolve().relative_to(ROOT)
    return str(path).removeprefix("neocpu/graph/")


def row(rule: GraphRule, brings: str) -> str:
    """Return a rule's line of the page."""
    summary = rule.summary.rstrip(".").replace("|", "\\|")
    cells = (f"`{rule.name}`", str(rule.kind), f"`{file_of(rule)}`", summary, brings)
    return f"| {' | '.join(cells)} |\n"


def effects_on_page() -> dict[str, str]:
    """Return the gain of each rule on the page."""
    rows = re.findall(r"(?m)^\| `([a-z-]+)` \|.*\| ([^|]*) \|$", PAGE.read_text())
    return dict(rows)


def page() -> str:
    """Return the page."""
    brings = best_effects()
    rows = [row(rule, _brings(rule, brings)) for rule in RULES]
    names = ", ".join(name for name, (_, by) in GONE.items() if by == IMPORT)
    gone = fill(f"These are gone when a graph is imported, and need no rule: {names}.", 100)
    return "".join((_HEAD, *rows, _EXPORTED, _IMPORT.format(gone=gone)))


def _brings(rule: GraphRule, brings: Mapping[str, str]) -> str:
    if rule.required:
        return "nothing compiles without it"
    return brings[rule.name]


def networks_on_page() -> Iterator[str]:
    """Yield the networks that the page names."""
    for text in effects_on_page().values():
        if ": " in text:
            yield text.partition(": ")[0]


if __name__ == "__main__":
    PAGE.write_text(page())
