"""Concatenations of fresh results, and a graph lowered up to its memory plan."""

from networks import HOST, build, cost_model
from tvm import relax

from neocpu.building.pipeline import Dump, lower
from neocpu.lowering.apply_plan import apply_plan
from neocpu.planning.extract import extract
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts

SHAPE = (1, 16, 6, 6)


def concat(net, *parts):
    return net.emit(relax.op.concat(list(parts), axis=1))


def exp(net, x):
    return net.emit(relax.op.exp(x))


def twice(net, x):
    """One tensor in two concatenations, and twice in one of them."""
    y, z = exp(net, x), net.emit(relax.op.tanh(x))
    return net.emit(relax.op.add(concat(net, y, z, z), concat(net, z, y, z)))


def lowered(body, *shapes, opt=OptLevel.NCHW):
    mod = build(body, *shapes)
    costs = cost_model()
    rewritten = apply_plan(mod, plan_layouts(extract(mod), costs, opt), costs)
    return mod, lower(rewritten.mod, HOST, Dump()), rewritten.weights
