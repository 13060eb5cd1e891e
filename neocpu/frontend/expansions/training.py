"""Outputs that only training has: those of batch normalisation and dropout."""

from __future__ import annotations

import numpy as np

from neocpu.frontend.expansions.writer import Writer


def batch_statistics(w: Writer) -> None:
    """BatchNormalization by the batch's own mean and variance, which update the running ones."""
    if not w.attribute("training_mode", 0):
        return
    shape = w.shape()
    axes = w.const([axis for axis in range(len(shape)) if axis != 1])
    mean = w.op("ReduceMean", w.input(0), axes)
    centred = w.op("Sub", w.input(0), mean)
    variance = w.op("ReduceMean", w.op("Mul", centred, centred), axes)
    raised = w.op("Add", variance, w.const(w.attribute("epsilon", 1e-5), like=0))
    wide = [1, shape[1], *[1] * (len(shape) - 2)]
    scaled = w.op("Mul", w.op("Div", centred, w.op("Sqrt", raised)), w.reshape(w.input(1), wide))
    w.give(w.op("Add", scaled, w.reshape(w.input(2), wide)))
    momentum = w.attribute("momentum", 0.9)
    for output, now in ((1, mean), (2, variance)):
        if w.used(output):
            old = w.op("Mul", w.input(output + 2), w.const(momentum, like=output + 2))
            new = w.op("Mul", w.reshape(now, [shape[1]]), w.const(1 - momentum, like=output + 2))
            w.give(w.op("Add", old, new), output)


def dropout_mask(w: Writer) -> None:
    """Dropout that drops nothing, with its mask, which is always true.

    Raises
    ------
    ValueError
        The node drops elements at random, which cannot be compiled.
    """
    training = w.has(2) and bool(w.constant(2))
    ratio = float(w.constant(1)) if w.has(1) else 0.5
    if training and ratio != 0:
        raise ValueError("training_mode is not supported: export the model for inference")
    if training or w.used(1):
        w.give(w.input(0))
        if w.used(1):
            w.define(w.node.output[1], np.ones(w.shape(), bool))
