"""Cells that are written out step by step become layers, which compute the same."""

import numpy as np
import pytest
from relax_modules import applied, assert_same_results, assert_unchanged, module, names
from tvm import relax

from neocpu.graph.recurrent.name_cells import NAME_CELLS
from neocpu.graph.simplify import simplify
from neocpu.ir.constants import make_const
from neocpu.ir.recurrent_calls import LAYER

R = relax.op
BATCH, STEPS, WIDTH, HIDDEN = 2, 3, 5, 7


def weights(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(0, 0.4, shape).astype(np.float32)


def constant(array):
    return make_const(np.array(array))


def step_of(bb, x, step, *, time_first=False):
    return bb.emit(R.take(x, relax.const(step, "int64"), axis=0 if time_first else 1))


def affine(bb, row, gates, seed):
    made = bb.emit(
        R.matmul(row, constant(weights(int(row.ty.shape[1]), gates * HIDDEN, seed=seed)))
    )
    return bb.emit(R.add(made, constant(weights(gates * HIDDEN, seed=seed))))


def parts(bb, tensor, count):
    made = bb.emit(R.split(tensor, count, -1))
    return [bb.emit(relax.TupleGetItem(made, i)) for i in range(count)]


def lstm_cell(bb, x, h, c, forget=0.0):
    """PyTorch's: gates i, f, g and o of two products."""
    total = bb.emit(R.add(affine(bb, x, 4, 1), affine(bb, h, 4, 2)))
    i, f, g, o = parts(bb, total, 4)
    f = bb.emit(R.add(f, relax.const(forget, "float32"))) if forget else f
    i, f, o = (bb.emit(R.sigmoid(one)) for one in (i, f, o))
    kept = bb.emit(R.multiply(f, c))
    c = bb.emit(R.add(kept, bb.emit(R.multiply(i, bb.emit(R.tanh(g))))))
    return bb.emit(R.multiply(o, bb.emit(R.tanh(c)))), c


def joined_cell(bb, x, h, c):
    """TensorFlow's: one product of the concatenated input and state, with a forget bias."""
    both = bb.emit(R.concat([x, h], 1))
    i, g, f, o = parts(bb, affine(bb, both, 4, 3), 4)
    f = bb.emit(R.add(f, constant(np.ones(HIDDEN, np.float32))))
    i, f, o = (bb.emit(R.sigmoid(one)) for one in (i, f, o))
    new = bb.emit(R.multiply(bb.emit(R.tanh(g)), i))
    c = bb.emit(R.add(new, bb.emit(R.multiply(c, f))))
    return bb.emit(R.multiply(bb.emit(R.tanh(c)), o)), c


def gru_cell(bb, x, h, *, one_minus=False):
    given, own = parts(bb, affine(bb, x, 3, 4), 3), parts(bb, affine(bb, h, 3, 5), 3)
    r, z = (bb.emit(R.sigmoid(bb.emit(R.add(given[k], own[k])))) for k in (0, 1))
    n = bb.emit(R.tanh(bb.emit(R.add(given[2], bb.emit(R.multiply(r, own[2]))))))
    if one_minus:
        rest = bb.emit(R.subtract(relax.const(1.0, "float32"), z))
        return bb.emit(R.add(bb.emit(R.multiply(rest, n)), bb.emit(R.multiply(z, h))))
    return bb.emit(R.add(bb.emit(R.multiply(bb.emit(R.subtract(h, n)), z)), n))


def nothing():
    return constant(np.zeros((BATCH, HIDDEN), np.float32))


def unrolled(cell, *, time_first=False, order=range(STEPS), states=()):
    """An unrolled loop of cells, and all their states concatenated."""

    def body(bb, x, *given):
        state = [given[i] if i in states else nothing() for i in range(len(given) or 2)]
        state = state[: 1 if cell is gru_cell else 2]
        every = []
        for step in order:
            row = step_of(bb, x, step, time_first=time_first)
            made = cell(bb, row, *state)
            state = [made] if cell is gru_cell else list(made)
            every.append(state[0])
        return bb.emit(R.stack(every, 1)), every[-1]

    return body


SHAPE = (BATCH, STEPS, WIDTH)


@pytest.mark.parametrize(
    ("cell", "form"),
    [
        (lstm_cell, "batch first"),
        (lstm_cell, "backwards"),
        (joined_cell, "time first"),
        (gru_cell, "backwards"),
        (gru_cell, "time first"),
    ],
)
def test_cells_become_a_layer(cell, form):
    order = range(STEPS) if form != "backwards" else reversed(range(STEPS))
    body = unrolled(cell, time_first=form == "time first", order=list(order))
    before = module(body, (STEPS, BATCH, WIDTH) if form == "time first" else SHAPE)
    after = simplify(before)
    assert LAYER in names(after)
    assert not {"tanh", "sigmoid"} & set(names(after))
    assert names(after).count("matmul") == 1
    assert_same_results(before, after)


def test_first_states_may_be_given():
    for cell in (lstm_cell, gru_cell):
        states = [(BATCH, HIDDEN)] * 2
        before = module(unrolled(cell, states=(0, 1)), SHAPE, *states)
        after = simplify(before)
        assert LAYER in names(after)
        assert "tanh" not in names(after)
        assert_same_results(before, after)


def test_layers_above_each_other():
    def body(bb, x):
        first = [nothing(), nothing()]
        second = nothing()
        for step in range(STEPS):
            first = list(lstm_cell(bb, step_of(bb, x, step), *first))
            second = gru_cell(bb, first[0], second, one_minus=True)
        return second

    after = applied(simplify, body, SHAPE)
    assert names(after).count(LAYER) == 2


def some_steps(bb, x):
    h = nothing()
    for step in range(STEPS - 1):
        h = gru_cell(bb, step_of(bb, x, step), h)
    return h


def cell_state(bb, x):
    """A cell state has another reader."""
    state = [nothing(), nothing()]
    for step in range(STEPS):
        state = list(lstm_cell(bb, step_of(bb, x, step), *state))
    return tuple(state)


def other_bias(bb, x):
    state = [nothing(), nothing()]
    for step in range(STEPS):
        state = list(lstm_cell(bb, step_of(bb, x, step), *state, forget=float(step)))
    return state[0]


@pytest.mark.parametrize("body", [some_steps, cell_state, other_bias])
def test_cells_that_form_no_layer_stay(body):
    assert_unchanged(NAME_CELLS, module(body, SHAPE))
