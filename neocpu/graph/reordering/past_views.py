"""Activations and normalisations move past the views around them."""

from __future__ import annotations

from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.expressions import (
    ACTIVATIONS,
    SHAPING,
    Expr,
    feature_map_shape,
    is_op,
    permutation_of,
)
from neocpu.ir.rewriting import Rewrite

_LAYERS = ("relax.nn.conv2d", "relax.matmul", "relax.add")


@local_rule(Kind.REORDERING, *ACTIVATIONS)
def activate_first(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Activations move before reshapes and transposes, to the layer that these follow.

    ::

        relu(reshape(conv2d(x, w)))    ->  reshape(relu(conv2d(x, w)))
        sigmoid(transpose(matmul(x)))  ->  transpose(sigmoid(matmul(x)))

    There they are steps of the convolution or dense layer, which applies them to its results.
    """
    shaped = rewrite.sole_definition(expr.args[0])
    if not is_op(shaped, *SHAPING) or not _follows_layer(shaped, rewrite):
        return None
    moved = rewrite.emit(Call(expr.op, [shaped.args[0], *expr.args[1:]], expr.attrs))
    return Call(shaped.op, [moved, *shaped.args[1:]], shaped.attrs)


def _follows_layer(shaped: Call, rewrite: Rewrite) -> bool:
    """Whether only reshapes and transposes with one reader lie between ``shaped`` and a layer."""
    inner = rewrite.sole_definition(shaped.args[0])
    if is_op(inner, *SHAPING):
        return _follows_layer(inner, rewrite)
    return is_op(inner, *_LAYERS)


@local_rule(Kind.REORDERING, "relax.permute_dims")
def normalise_channels(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """A layer normalisation between opposite transposes of a map is one of the map's channels.

    ::

        transpose_back(layer_norm(transpose(x), axes=[-1]))  ->  layer_norm(x, axes=[1])

    ConvNeXt transposes feature maps in order to normalise the channels of each pixel.
    """
    normal = rewrite.sole_definition(expr.args[0])
    if not is_op(normal, "relax.nn.layer_norm"):
        return None
    inner, axes = rewrite.definition(normal.args[0]), normal.attrs.axes
    if not is_op(inner, "relax.permute_dims") or len(axes) != 1:
        return None
    first, second = permutation_of(inner), permutation_of(expr)
    if feature_map_shape(expr) is None or [first[axis] for axis in second] != [0, 1, 2, 3]:
        return None
    along, epsilon = first[int(axes[0]) % 4], float(normal.attrs.epsilon)
    return relax.op.nn.layer_norm(inner.args[0], *normal.args[1:], [along], epsilon)
