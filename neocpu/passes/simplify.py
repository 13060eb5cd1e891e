"""Simplify an imported model: the target-independent passes, in order, to a fixpoint."""

from __future__ import annotations

from typing import Any

import tvm

from neocpu.passes.absorb_channel_shuffles import AbsorbChannelShuffles
from neocpu.passes.canonicalize_activations import CanonicalizeActivations
from neocpu.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from neocpu.passes.eliminate_dead_code import EliminateDeadCode
from neocpu.passes.eliminate_identities import EliminateIdentities
from neocpu.passes.fold_batch_norm import FoldBatchNorm
from neocpu.passes.fold_constants import FoldConstants
from neocpu.passes.fold_scale import FoldScale
from neocpu.passes.share_concat_prefix import ShareConcatPrefix

#: Name and pass, in the order they run. Each leaves no dead binding behind.
SIMPLIFY_PASSES: tuple[tuple[str, Any], ...] = (
    # 1. Weights the exporter left as expressions become constants, shapes become static.
    ("fold-constants", FoldConstants()),
    # 2. Dropout, no-op reshapes and the like go, so that they do not hide a pattern.
    ("eliminate-identities", EliminateIdentities()),
    # 3. Operator replacement: one spelling for each activation, for subtract and for divide.
    ("canonicalize-activations", CanonicalizeActivations()),
    # 4. Batch normalization becomes multiply and add ...
    ("fold-batch-norm", FoldBatchNorm()),
    # 5. ... and those merge with their neighbours and vanish in the convolution's weights and bias.
    ("fold-scale", FoldScale()),
    # 6. Equal work is done once; a concat continues the concat that it starts with.
    ("eliminate-common-subexpressions", EliminateCommonSubexpressions()),
    ("share-concat-prefix", ShareConcatPrefix()),
    # 7. Channel shuffles vanish in the weights around them.
    ("absorb-channel-shuffles", AbsorbChannelShuffles()),
    # 8. Trivial bindings and functions nothing calls go.
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
    """
    for _ in range(MAX_ROUNDS):
        before = mod["main"]
        for _, simplify_pass in SIMPLIFY_PASSES:
            mod = simplify_pass(mod)
        if mod["main"].same_as(before):
            break
    return mod
