"""The meaning of each parameter of a scheme, in a sentence."""

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
