"""Flattened control flow, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime

from neocpu.frontend.control_flow.flatten import REWRITTEN
from neocpu.frontend.load import load_model
from neocpu.verification.reference.runner import run_reference

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


YES, NO = np.array(True), np.array(False)


def run_onnxruntime(model, feeds):
    options = onnxruntime.SessionOptions()
    # Its optimiser crashes on some nested bodies.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    taken = {value.name for value in session.get_inputs()}
    return session.run(None, {name: feeds[name] for name in feeds if name in taken})


def compare(model, *all_feeds):
    """Compare the flattened model, and the reference on the original, with ONNX Runtime."""
    loaded = load_model(model)
    assert not REWRITTEN.intersection(node.op_type for node in loaded.simplified.graph.node)
    for feeds in all_feeds:
        expected = run_onnxruntime(model, feeds)
        for how in ({}, {"double": True}):
            for which in (loaded.simplified, loaded.original):
                actual = list(run_reference(which, feeds, **how).values())
                for one, other in zip(actual, expected, strict=True):
                    assert one.shape == other.shape
                    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return loaded.simplified.graph
