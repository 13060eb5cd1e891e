"""All rules, in the order in which they are applied; each phase applies its rules in one walk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.graph.folding.fold_constants import fold_constants
from neocpu.graph.folding.fold_scale import fold_batch_norm, fold_scale
from neocpu.graph.folding.move_scales import scale_before, scale_through_concat, scale_through_views
from neocpu.graph.recurrent.name_cells import NAME_CELLS
from neocpu.graph.redundancy.concatenations import (
    concat_of_slices,
    share_concat_prefix,
    slice_of_concat,
    split_channels,
)
from neocpu.graph.redundancy.crop_kernels import crop_kernels
from neocpu.graph.redundancy.drop_no_effects import (
    drop_pool,
    drop_slice,
    expand_before,
    neutral_operands,
)
from neocpu.graph.redundancy.eliminate_common_subexpressions import eliminate_common_subexpressions
from neocpu.graph.redundancy.merge_moves import (
    merge_reshapes,
    merge_slices,
    merge_transposes,
    slice_of_pad,
)
from neocpu.graph.reordering.absorb_channel_shuffles import ABSORB_CHANNEL_SHUFFLES
from neocpu.graph.reordering.attention_products import scale_queries, weights_first
from neocpu.graph.reordering.cancel_layouts import cancel_layouts
from neocpu.graph.reordering.enlarge_last import project_before_concat, upsample_last
from neocpu.graph.reordering.keep_frames import keep_frames
from neocpu.graph.reordering.move_quantisation import move_quantisation
from neocpu.graph.reordering.order_pixel_shuffles import order_pixel_shuffles
from neocpu.graph.reordering.past_views import activate_first, normalise_channels
from neocpu.graph.reordering.reduce_first import pool_first, pool_last, reduce_first
from neocpu.graph.reordering.sink_squeezes import sink_squeezes
from neocpu.graph.reordering.slice_before import slice_before
from neocpu.graph.replacement.canonicalize_activations import canonicalize_activations
from neocpu.graph.replacement.name_normalisations import (
    name_group_norms,
    name_normalisations,
    name_norms,
    scale_normalisations,
)
from neocpu.graph.replacement.reductions import factor_sums, keep_pixel_axes, sum_of_concat
from neocpu.graph.replacement.sum_convolutions import sum_convolutions
from neocpu.graph.rule import GraphRule

PHASES: Final[tuple[tuple[GraphRule, ...], ...]] = (
    # Weights that the exporter left as expressions become constants, and shapes become static.
    (fold_constants,),
    # Dropout, no-op reshapes and operators that undo or repeat the one before go: they would hide
    # patterns.
    (
        neutral_operands,
        merge_reshapes,
        merge_transposes,
        drop_slice,
        drop_pool,
        merge_slices,
        slice_of_pad,
        slice_of_concat,
        concat_of_slices,
        expand_before,
        crop_kernels,
    ),
    # Between convolutions over one dimension everything works on images of one row, and between
    # convolutions over volumes on their depth slices.
    (sink_squeezes, keep_frames),
    # Operators are replaced: one spelling for each activation, for subtract and for divide.
    (
        canonicalize_activations,
        sum_of_concat,
        keep_pixel_axes,
        name_normalisations,
        name_norms,
        name_group_norms,
    ),
    # Values that a quantised model rounds are rounded where they are computed.
    (move_quantisation,),
    # Cells that are written out, step by step, become layers.
    (NAME_CELLS,),
    # Parts of splits get a layout.
    (split_channels,),
    # Batch normalization becomes multiply and add ...
    (fold_batch_norm,),
    # ... and those merge with their neighbours and vanish in the convolution's weights and bias.
    (fold_scale, scale_through_views, scale_through_concat, scale_before),
    # The same is computed with less work, by other operators or in another order.
    (
        scale_normalisations,
        scale_queries,
        sum_convolutions,
        pool_first,
        pool_last,
        project_before_concat,
        upsample_last,
        reduce_first,
        factor_sums,
        activate_first,
        cancel_layouts,
        weights_first,
        normalise_channels,
        slice_before,
    ),
    # Equal work is done once; a concat continues the concat that it starts with.
    (eliminate_common_subexpressions,),
    (share_concat_prefix,),
    # Channel shuffles vanish in the weights around them.
    (ABSORB_CHANNEL_SHUFFLES,),
    # The channels that become pixels are in the order in which blocks of them stay whole.
    (order_pixel_shuffles,),
)

RULES: Final[tuple[GraphRule, ...]] = tuple(rule for phase in PHASES for rule in phase)


def parse_disabled(names: Iterable[str]) -> frozenset[str]:
    """Return names of rules, or raise UsageError for one that does not exist or is required."""
    disabled = frozenset(names)
    known = {rule.name: rule for rule in RULES}
    for name in sorted(disabled):
        if name not in known:
            hint = did_you_mean(name, known) or "; see neocpu compile --list-rules"
            raise UsageError(f"there is no rule '{name}'{hint}")
        if known[name].required:
            raise UsageError(f"rule '{name}' cannot be disabled: nothing compiles without it")
    return disabled
