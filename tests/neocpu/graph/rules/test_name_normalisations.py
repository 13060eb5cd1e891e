"""Normalisations are recognised in exporters' graphs; similar graphs stay."""

from functools import partial

import numpy as np
import pytest
from relax_modules import applied, assert_same_results, assert_unchanged, const, module, names
from tvm import relax

from neocpu.graph.replacement.name_normalisations import (
    name_group_norms,
    name_normalisations,
    name_norms,
    scale_normalisations,
)
from neocpu.graph.rule import apply_rules
from neocpu.ir.norm_calls import DIVISION

R = relax.op
RULES = (name_normalisations, name_norms, name_group_norms, scale_normalisations)
RNG = np.random.default_rng(0)
find = partial(apply_rules, rules=RULES)


def normal(axes, scale, shift, *, root="sqrt", keepdims=True, other=None, epsilon=1e-5):
    def body(bb, x):
        mean = bb.emit(R.mean(x, axes, keepdims=True))
        centred = bb.emit(R.subtract(x, mean))
        square = bb.emit(R.multiply(centred, bb.emit(other(x)) if other else centred))
        variance = bb.emit(R.mean(square, axes, keepdims=True))
        total = bb.emit(R.add(variance, relax.const(epsilon, "float32")))
        if root == "sqrt":
            made = bb.emit(R.divide(centred, bb.emit(R.sqrt(total))))
        else:
            made = bb.emit(R.multiply(bb.emit(R.rsqrt(total)), centred))
        made = bb.emit(R.multiply(made, const(RNG, *scale)))
        return bb.emit(R.add(made, const(RNG, *shift)))

    return body


FOUND = {
    "layer": (normal([-1], (6,), (6,)), (2, 5, 6), "nn.layer_norm"),
    "layer of a root's reciprocal": (normal([2], (1,), (6,), root="r"), (2, 5, 6), "nn.layer_norm"),
    "layer of channels": (normal([1], (6, 1, 1), (1, 6, 1, 1)), (2, 6, 4, 3), "nn.layer_norm"),
    "instance": (normal([2, 3], (1, 6, 1, 1), (6, 1, 1)), (2, 6, 4, 3), "nn.group_norm"),
}


@pytest.mark.parametrize("name", FOUND)
def test_normalisations_are_found(name):
    body, shape, op = FOUND[name]
    assert names(applied(find, body, shape)) == [op]


def number(value):
    return relax.const(value, "float32")


def squares(bb, x, axes, fold=R.mean, *, keepdims=True):
    total = bb.emit(fold(bb.emit(R.multiply(x, x)), axes, keepdims=keepdims))
    if keepdims:
        return total
    shape = [1 if i - 3 in axes or i in axes else extent for i, extent in enumerate((2, 5, 6))]
    return bb.emit(R.reshape(total, shape))


def centred(bb, x, axes=(-1,)):
    return bb.emit(R.subtract(x, bb.emit(R.mean(x, list(axes), keepdims=True))))


def less_one(bb, x):
    """torch.var: divided by one less than there are elements."""
    y = centred(bb, x)
    variance = bb.emit(R.multiply(squares(bb, y, [-1]), number(6 / 5)))
    return bb.emit(R.divide(y, bb.emit(R.sqrt(bb.emit(R.add(variance, number(1e-2)))))))


def dynamo(bb, x):
    """Normalise channels as PyTorch's newer exporter does: the axis returns late."""
    y = centred(bb, x, (1,))
    variance = bb.emit(R.mean(bb.emit(R.multiply(y, y)), [1]))
    variance = bb.emit(R.multiply(variance, number(5 / 4)))
    root = bb.emit(R.sqrt(bb.emit(R.reshape(variance, (2, 1, 6)))))
    return bb.emit(R.divide(y, bb.emit(R.add(root, number(1e-2)))))


def one_pass(bb, x):
    """Flax clips the variance at zero."""
    mean = bb.emit(R.mean(x, [-1], keepdims=True))
    variance = bb.emit(R.subtract(squares(bb, x, [-1]), bb.emit(R.multiply(mean, mean))))
    total = bb.emit(R.add(bb.emit(R.nn.relu(variance)), number(1e-3)))
    factor = bb.emit(R.multiply(bb.emit(R.rsqrt(total)), const(RNG, 6)))
    made = bb.emit(R.multiply(bb.emit(R.subtract(x, mean)), factor))
    return bb.emit(R.add(made, const(RNG, 6)))


def keras(bb, x):
    mean = bb.emit(R.mean(x, [1], keepdims=True))
    variance = squares(bb, bb.emit(R.subtract(x, mean)), [1])
    root = bb.emit(R.rsqrt(bb.emit(R.add(variance, number(1e-3)))))
    factor = bb.emit(R.multiply(root, const(RNG, 1, 5, 1)))
    rest = bb.emit(R.subtract(const(RNG, 5, 1), bb.emit(R.multiply(mean, factor))))
    return bb.emit(R.add(bb.emit(R.multiply(x, factor)), rest))


def imported(bb, x):
    """InstanceNormalization, as TVM's importer writes it."""
    variance = bb.emit(R.variance(x, [2], keepdims=True))
    root = bb.emit(R.sqrt(bb.emit(R.add(variance, number(1e-3)))))
    return bb.emit(R.divide(centred(bb, x), root))


def rms(bb, x):
    total = bb.emit(R.add(squares(bb, x, [-1]), number(1e-2)))
    inverse = bb.emit(R.divide(number(1.0), bb.emit(R.sqrt(total))))
    return bb.emit(R.multiply(bb.emit(R.multiply(x, inverse)), const(RNG, 6)))


def unit(bb, x, *, axis=-1, keepdims=True):
    """F.normalize."""
    norm = bb.emit(R.sqrt(squares(bb, x, [axis], R.sum, keepdims=keepdims)))
    norm = bb.emit(R.broadcast_to(bb.emit(R.maximum(norm, number(1e-1))), (2, 5, 6)))
    return bb.emit(R.divide(x, norm))


def lp(bb, x):
    """Emit LpNormalization, which leaves a row of zeros unchanged."""
    x = bb.emit(R.nn.relu(bb.emit(R.add(x, number(-1.5)))))
    norm = bb.emit(R.sqrt(squares(bb, x, [2], R.sum)))
    none = bb.emit(R.equal(norm, number(0.0)))
    return bb.emit(R.divide(x, bb.emit(R.where(none, number(1.0), norm))))


def deviation(bb, x):
    """MeanVarianceNormalization adds epsilon to the root."""
    y = centred(bb, x, (1, 2))
    return bb.emit(
        R.divide(y, bb.emit(R.add(bb.emit(R.sqrt(squares(bb, y, [1, 2]))), number(0.1))))
    )


FORMS = {
    "less one": (less_one, ["nn.layer_norm"]),
    "dynamo": (dynamo, [DIVISION]),
    "one pass": (one_pass, ["nn.layer_norm"]),
    "Keras": (keras, ["nn.layer_norm"]),
    "imported": (imported, ["nn.layer_norm"]),
    "RMS": (rms, [DIVISION]),
    "L2": (unit, [DIVISION]),
    "L2 of channels": (partial(unit, axis=1, keepdims=False), [DIVISION]),
    "Lp": (lp, ["add", "nn.relu", DIVISION]),
    "deviation": (deviation, [DIVISION]),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_exporters_are_found(form):
    body, left = FORMS[form]
    assert names(applied(find, body, (2, 5, 6))) == left


def test_a_norm_that_something_else_reads_stays():
    def body(bb, x):
        norm = bb.emit(R.sqrt(squares(bb, x, [-1], R.sum)))
        return norm, bb.emit(R.divide(x, norm))

    assert_unchanged(find, module(body, (2, 5, 6)))


def groups(bb, x, shape, axes, scale=(6, 1, 1)):
    y = bb.emit(R.reshape(x, shape))
    y = normal(axes, (1,), (1,))(bb, y)
    y = bb.emit(R.multiply(bb.emit(R.reshape(y, (2, 6, 4, 3))), const(RNG, *scale)))
    return bb.emit(R.add(y, const(RNG, 6, 1, 1)))


@pytest.mark.parametrize("shape", [(2, 2, 36), (2, 3, 4, 6), (2, 1, 72)])
def test_group_normalisations_are_found(shape):
    """PyTorch exports GroupNorm between reshapes."""
    axes = list(range(2, len(shape)))
    before = module(lambda bb, x: groups(bb, x, shape, axes), (2, 6, 12))
    after = find(find(before))
    assert [name for name in names(after) if name != "reshape"] == ["nn.group_norm"]
    assert_same_results(before, after)


@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 4, 18), [2]), ((1, 4, 36), [2]), ((2, 2, 6, 6), [3])]
)
def test_normalisations_of_other_groups_stay(shape, axes):
    before = module(lambda bb, x: groups(bb, x, shape, axes), (2, 6, 12))
    assert "nn.group_norm" not in names(find(find(before)))


def test_a_norm_of_other_rows_stays():
    """The norms of a square matrix have the same shape by rows and by columns."""

    def body(bb, x):
        return bb.emit(R.divide(x, bb.emit(R.sqrt(bb.emit(R.sum(bb.emit(R.multiply(x, x)), [1]))))))

    assert_unchanged(find, module(body, (5, 5)))


def test_another_tensor_divided_by_a_norm_stays():
    def body(bb, x, y):
        return bb.emit(R.divide(y, bb.emit(R.sqrt(squares(bb, x, [-1], R.sum)))))

    assert_unchanged(find, module(body, (2, 5, 6), (2, 5, 6)))


UNLIKE = {
    "another variance": normal([-1], (6,), (6,), other=R.exp),
    "a root of a negative": normal([-1], (6,), (6,), root="r", other=R.abs),
    "one dimension more": normal([-1], (6,), (6,), epsilon=np.full((1, 1, 1, 1), 1e-5)),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_quotients_that_are_no_normalisation_stay(name):
    assert_unchanged(find, module(UNLIKE[name], (2, 5, 6)))


def test_a_scale_of_other_axes_stays():
    before = module(normal([-1], (5, 1), (5, 1)), (2, 5, 6))
    assert names(find(before)) == ["nn.layer_norm", "multiply", "add"]


def test_a_normalisation_with_other_readers_keeps_its_separate_scale():
    def body(bb, x):
        made = bb.emit(R.nn.layer_norm(x, const(RNG, 6), const(RNG, 6), [-1]))
        return made, bb.emit(R.multiply(made, const(RNG, 6)))

    assert_unchanged(find, module(body, (2, 5, 6)))
