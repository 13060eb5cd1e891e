"""Feature maps as rows of channels, which transformers call tokens.

Rows ``(N, H W, C)`` that a model transposes to a feature map ``(N, C, H, W)`` are already that map
in NCHW[C]c, in which one block has all channels. So the rows are one more layout of the map. Other
layouts are made of the rows at once, and rows are made at once of a map in any layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from tvm.ir import Var

from neocpu.ir.expressions import Expr, feature_map_shape, static_shape
from neocpu.ir.views import seen
from neocpu.planning.operators.layout_op import Function, Shape4, read_within
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.strided_view import StridedView

FEWEST_CHANNELS = 8
"""The fewest channels that fill vectors. Rows with fewer are transposed as in the model."""


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """A feature map and its rows; the model makes one of the two from the other."""

    source: Var  # the one that the model makes the other from
    shape: Shape4  # shape of the feature map
    made: bool  # whether rows are made from the map; if not, the map is made from rows
    absorbed: frozenset[Var]  # variables in between, which no longer exist

    @property
    def form(self) -> Format:
        """The format in which the map is its rows."""
        return Format(DataLayout(self.shape[1]), "float32")


def find_tokens(function: Function, claimed: Set[Var]) -> dict[Var, Tokens]:
    """Return the rows that are transposed feature maps, and the maps that are transposed rows. The
    variables ``claimed``, which operators make or absorb, are no tokens, and nothing is looked up
    through them.
    """
    visible = {var: value for var, value in function.definitions().items() if var not in claimed}
    found = ((var, _tokens(visible, var)) for var in visible)
    tokens = {var: each for var, each in found if each is not None}
    inner = {between for each in tokens.values() for between in each.absorbed} - tokens.keys()
    absorbed = read_within(function, inner, tokens.keys())
    return {var: replace(each, absorbed=each.absorbed & absorbed) for var, each in tokens.items()}


def _tokens(visible: Mapping[Var, Expr], var: Var) -> Tokens | None:
    whole = seen(var, visible)
    if whole is None or not isinstance(whole.source, Var):
        return None
    shape, view = static_shape(var) or (), whole.view
    rows, pixels = feature_map_shape(whole.source), feature_map_shape(var)
    if pixels is not None and pixels[1] >= FEWEST_CHANNELS:
        n, c, h, w = pixels
        if view == StridedView.of((n, h, w, c)).permuted((0, 3, 1, 2)) != StridedView.of(pixels):
            return Tokens(whole.source, pixels, False, frozenset(whole.through[1:]))
    if rows is not None and rows[1] >= FEWEST_CHANNELS:
        moved = StridedView.of(rows).permuted((0, 2, 3, 1)).reshaped(shape)
        if view == moved != StridedView.of(shape):
            return Tokens(whole.source, rows, True, frozenset(whole.through[1:]))
    return None
