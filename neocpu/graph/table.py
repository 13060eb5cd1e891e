"""All rules, in the order in which they are applied; each phase applies its rules in one walk."""

from __future__ import annotations

from typing import Final

from neocpu.graph.folding.fold_batch_norm import FOLD_BATCH_NORM
from neocpu.graph.folding.fold_constants import FOLD_CONSTANTS
from neocpu.graph.folding.fold_scale import FOLD_SCALE
from neocpu.graph.folding.scale_before import SCALE_BEFORE
from neocpu.graph.folding.scale_through_concat import SCALE_THROUGH_CONCAT
from neocpu.graph.folding.scale_through_views import SCALE_THROUGH_VIEWS
from neocpu.graph.recurrent.name_cells import NAME_CELLS
from neocpu.graph.redundancy.concat_slice import CONCAT_OF_SLICES, SLICE_OF_CONCAT
from neocpu.graph.redundancy.crop_kernels import CROP_KERNELS
from neocpu.graph.redundancy.drop_no_effects import DROP_POOL, DROP_SLICE
from neocpu.graph.redundancy.eliminate_common_subexpressions import ELIMINATE_COMMON_SUBEXPRESSIONS
from neocpu.graph.redundancy.expand_before import EXPAND_BEFORE
from neocpu.graph.redundancy.merge_reshapes import MERGE_RESHAPES
from neocpu.graph.redundancy.merge_slices import MERGE_SLICES, SLICE_OF_PAD
from neocpu.graph.redundancy.merge_transposes import MERGE_TRANSPOSES
from neocpu.graph.redundancy.neutral_operands import NEUTRAL_OPERANDS
from neocpu.graph.redundancy.share_concat_prefix import SHARE_CONCAT_PREFIX
from neocpu.graph.reordering.absorb_channel_shuffles import ABSORB_CHANNEL_SHUFFLES
from neocpu.graph.reordering.activate_first import ACTIVATE_FIRST
from neocpu.graph.reordering.cancel_layouts import CANCEL_LAYOUTS
from neocpu.graph.reordering.keep_frames import KEEP_FRAMES
from neocpu.graph.reordering.move_quantisation import MOVE_QUANTISATION
from neocpu.graph.reordering.normalise_channels import NORMALISE_CHANNELS
from neocpu.graph.reordering.order_pixel_shuffles import ORDER_PIXEL_SHUFFLES
from neocpu.graph.reordering.pool_where_less import POOL_FIRST, POOL_LAST
from neocpu.graph.reordering.project_before_concat import PROJECT_BEFORE_CONCAT
from neocpu.graph.reordering.reduce_first import REDUCE_FIRST
from neocpu.graph.reordering.sink_squeezes import SINK_SQUEEZES
from neocpu.graph.reordering.slice_before import SLICE_BEFORE
from neocpu.graph.reordering.upsample_last import UPSAMPLE_LAST
from neocpu.graph.reordering.weights_first import WEIGHTS_FIRST
from neocpu.graph.replacement.attention_scores import SCALE_QUERIES
from neocpu.graph.replacement.canonicalize_activations import CANONICALIZE_ACTIVATIONS
from neocpu.graph.replacement.factor_sums import FACTOR_SUMS
from neocpu.graph.replacement.keep_pixel_axes import KEEP_PIXEL_AXES
from neocpu.graph.replacement.name_normalisations import (
    NAME_GROUP_NORMS,
    NAME_NORMALISATIONS,
    NAME_NORMS,
    SCALE_NORMALISATIONS,
)
from neocpu.graph.replacement.split_channels import SPLIT_CHANNELS
from neocpu.graph.replacement.sum_convolutions import SUM_CONVOLUTIONS
from neocpu.graph.replacement.sum_of_concat import SUM_OF_CONCAT
from neocpu.graph.rule import GraphRule

PHASES: Final[tuple[tuple[GraphRule, ...], ...]] = (
    # Weights that the exporter left as expressions become constants, and shapes become static.
    (FOLD_CONSTANTS,),
    # Dropout, no-op reshapes and operators that undo or repeat the one before go: they would hide
    # patterns.
    (
        NEUTRAL_OPERANDS,
        MERGE_RESHAPES,
        MERGE_TRANSPOSES,
        DROP_SLICE,
        DROP_POOL,
        MERGE_SLICES,
        SLICE_OF_PAD,
        SLICE_OF_CONCAT,
        CONCAT_OF_SLICES,
        EXPAND_BEFORE,
        CROP_KERNELS,
    ),
    # Between convolutions over one dimension everything works on images of one row, and between
    # convolutions over volumes on their depth slices.
    (SINK_SQUEEZES, KEEP_FRAMES),
    # Operators are replaced: one spelling for each activation, for subtract and for divide.
    (
        CANONICALIZE_ACTIVATIONS,
        SUM_OF_CONCAT,
        KEEP_PIXEL_AXES,
        NAME_NORMALISATIONS,
        NAME_NORMS,
        NAME_GROUP_NORMS,
    ),
    # Values that a quantised model rounds are rounded where they are computed.
    (MOVE_QUANTISATION,),
    # Cells that are written out, step by step, become layers.
    (NAME_CELLS,),
    # Parts of splits get a layout.
    (SPLIT_CHANNELS,),
    # Batch normalization becomes multiply and add ...
    (FOLD_BATCH_NORM,),
    # ... and those merge with their neighbours and vanish in the convolution's weights and bias.
    (FOLD_SCALE, SCALE_THROUGH_VIEWS, SCALE_THROUGH_CONCAT, SCALE_BEFORE),
    # The same is computed with less work, by other operators or in another order.
    (
        SCALE_NORMALISATIONS,
        SCALE_QUERIES,
        SUM_CONVOLUTIONS,
        POOL_FIRST,
        POOL_LAST,
        PROJECT_BEFORE_CONCAT,
        UPSAMPLE_LAST,
        REDUCE_FIRST,
        FACTOR_SUMS,
        ACTIVATE_FIRST,
        CANCEL_LAYOUTS,
        WEIGHTS_FIRST,
        NORMALISE_CHANNELS,
        SLICE_BEFORE,
    ),
    # Equal work is done once; a concat continues the concat that it starts with.
    (ELIMINATE_COMMON_SUBEXPRESSIONS,),
    (SHARE_CONCAT_PREFIX,),
    # Channel shuffles vanish in the weights around them.
    (ABSORB_CHANNEL_SHUFFLES,),
    # The channels that become pixels are in the order in which blocks of them stay whole.
    (ORDER_PIXEL_SHUFFLES,),
)

RULES: Final[tuple[GraphRule, ...]] = tuple(rule for phase in PHASES for rule in phase)
