"""Simplify an imported model: the target-independent passes, in order, to a fixpoint."""

from __future__ import annotations

import re
from typing import Any

import tvm
from tvm import relax

from neocpu.foundation.errors import UnsupportedError
from neocpu.passes.absorb_channel_shuffles import AbsorbChannelShuffles
from neocpu.passes.canonicalize_activations import CanonicalizeActivations
from neocpu.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from neocpu.passes.eliminate_dead_code import EliminateDeadCode
from neocpu.passes.eliminate_identities import EliminateIdentities
from neocpu.passes.fold_batch_norm import FoldBatchNorm
from neocpu.passes.fold_constants import FoldConstants
from neocpu.passes.fold_scale import FoldScale
from neocpu.passes.move_quantisation import MoveQuantisation
from neocpu.passes.share_concat_prefix import ShareConcatPrefix
from neocpu.passes.sink_squeezes import SinkSqueezes
from neocpu.relax_utils import bindings, shape_values

#: Name and pass, in the order they run. Each leaves no dead binding behind.
SIMPLIFY_PASSES: tuple[tuple[str, Any], ...] = (
    # 1. Weights the exporter left as expressions become constants, shapes become static.
    ("fold-constants", FoldConstants()),
    # 2. Dropout, no-op reshapes and the like go, so that they do not hide a pattern.
    ("eliminate-identities", EliminateIdentities()),
    # Between convolutions over one dimension everything happens to images of one row.
    ("sink-squeezes", SinkSqueezes()),
    # 3. Operator replacement: one spelling for each activation, for subtract and for divide.
    ("canonicalize-activations", CanonicalizeActivations()),
    # 4. What a quantised model rounds is rounded where it is computed.
    ("move-quantisation", MoveQuantisation()),
    # 5. Batch normalization becomes multiply and add ...
    ("fold-batch-norm", FoldBatchNorm()),
    # 6. ... and those merge with their neighbours and vanish in the convolution's weights and bias.
    ("fold-scale", FoldScale()),
    # 7. Equal work is done once; a concat continues the concat that it starts with.
    ("eliminate-common-subexpressions", EliminateCommonSubexpressions()),
    ("share-concat-prefix", ShareConcatPrefix()),
    # 8. Channel shuffles vanish in the weights around them.
    ("absorb-channel-shuffles", AbsorbChannelShuffles()),
    # 9. Trivial bindings and functions nothing calls go.
    ("eliminate-dead-code", EliminateDeadCode()),
)

#: One pass can enable an earlier one; two rounds settle all known networks.
MAX_ROUNDS = 4


def simplify(mod: tvm.IRModule) -> tvm.IRModule:
    """Return an equivalent module with fewer and more uniform operators.

    Parameters
    ----------
    mod : tvm.IRModule
        As ``tvm.relax.frontend.onnx.from_onnx`` produces it: static shapes, weights as constants,
        one public function ``main``. The parameters and results of ``main`` do not change.

    Returns
    -------
    tvm.IRModule
        Convolutions followed by at most one bias ``add`` with a ``(1, C, 1, 1)`` constant, no batch
        normalization, all-constant operators evaluated.

    Raises
    ------
    UnsupportedError
        If data decides the shape of a tensor, even of one that no output has the shape of: it would
        decide what memory a kernel writes.
    """
    for _ in range(MAX_ROUNDS):
        before = mod["main"]
        for _, simplify_pass in SIMPLIFY_PASSES:
            mod = simplify_pass(mod)
        if mod["main"].same_as(before):
            break
    _require_static_shapes(mod["main"])
    return mod


def _require_static_shapes(main: relax.Function) -> None:
    names = [binding.var.name for binding in bindings(main) if not _is_static(binding.var.ty)]
    if names:
        # Most are ONNX's; what TVM made in between it has numbered.
        name = next((name for name in names if not re.fullmatch(r"lv\d*", name)), names[0])
        raise UnsupportedError(
            f"the shape of '{name}' depends on the data; only static shapes are supported"
        )


def _is_static(ty: relax.Type) -> bool:
    if isinstance(ty, relax.TupleType):
        return all(map(_is_static, ty.fields))
    if not isinstance(ty, relax.TensorType):
        return True
    return ty.shape is not None and shape_values(ty.shape) is not None
