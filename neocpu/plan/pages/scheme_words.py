"""The meaning of each algorithm and of each parameter of a scheme, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WORDS: Final[Mapping[str, str]] = {
    "ic_bn": "Channels of the input that lie side by side in memory; 1 is plain NCHW.",
    "oc_bn": "Output channels that lie side by side in memory, computed as vectors.",
    "reg_n": "Output columns (of Winograd: tiles) whose sums stay in registers at once.",
    "reg_oh": "Output rows whose sums stay in registers at once.",
    "reg_oc": "Output channels whose sums stay in registers at once.",
    "unroll_ker": "Whether the loops over the kernel's window are written out.",
    "out_bn": "Channels side by side in the output, where the stores transform its layout.",
    "sum_chunks": "Blocks of input channels that are summed before they join the output's sum: it "
    "rounds less.",
    "tile": "Output pixels along the side of a Winograd tile: larger ones multiply less, and round "
    "more.",
    "strip": "Register tiles, along the image, that make one task of a thread.",
    "oc_split": "Whether threads share the output channels of a strip.",
    "on_the_fly": "Whether weights are stored untransformed, and transformed in every run.",
    "edge_tiles": "Whether smaller tiles compute the rest at the image's edges.",
    "ic_block": "Input channels of one pass, whose weights stay in the first-level cache.",
    "ic_half": "Input channels of each of two halves: seven products of halves replace eight.",
    "dot": "Input channels whose weights lie side by side, as the instruction takes them.",
    "int16_groups": "Groups of 8-bit products that are added up in 16 bits before they join a sum.",
}
"""Meanings of parameters by their names, without those of operators that packages add."""

TEMPLATES: Final[Mapping[str, str]] = {
    "conv2d_direct": "The convolution as defined, with a tile of its outputs in registers.",
    "conv2d_depthwise": "Each channel by itself, a vector lane per channel.",
    "conv2d_grouped": "Each group of channels by itself, a vector lane per output channel.",
    "conv2d_nchw": "Computes plain NCHW, vectorised along the rows of the picture.",
    "conv2d_winograd": "Transforms tiles of pixels, so that a product does the work of several.",
    "conv2d_pointwise": "A 1x1 convolution as a product of matrices, blocked for the caches.",
    "conv2d_strassen": "A 1x1 convolution by seven products of halves of matrices, not eight.",
    "conv2d_dot": "Uses instructions that add several products of few bits to each sum.",
    "conv2d_matrix": "Uses instructions that multiply several pixels by several channels at once.",
    "conv2d_split": "Computes float32 by products of bfloat16: three for each product.",
    "layout_transform": "Moves channels into other blocks.",
    "join": "Copies feature maps side by side.",
}
"""Meanings of templates by their names."""
