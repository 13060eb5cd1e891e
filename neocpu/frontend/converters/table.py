"""The operators that our converters import instead of TVM's importer."""

from __future__ import annotations

from neocpu.frontend.converters import (
    convert_axis,
    convert_conv,
    convert_conv_transpose,
    convert_elementwise,
    convert_integer,
    convert_lookup,
    convert_pool,
    convert_recurrent,
    convert_resize,
    convert_sampling,
    convert_shape,
)
from neocpu.frontend.converters.node import Converters

CONVERTERS: Converters = {
    **convert_axis.CONVERTERS,
    **convert_conv.CONVERTERS,
    **convert_conv_transpose.CONVERTERS,
    **convert_elementwise.CONVERTERS,
    **convert_integer.CONVERTERS,
    **convert_lookup.CONVERTERS,
    **convert_pool.CONVERTERS,
    **convert_recurrent.CONVERTERS,
    **convert_resize.CONVERTERS,
    **convert_sampling.CONVERTERS,
    **convert_shape.CONVERTERS,
}

#: Converters of operators in ONNX Runtime's own domain.
CONTRIB_CONVERTERS: Converters = {
    "EmbedLayerNormalization": convert_lookup.embed_layer_normalization
}
