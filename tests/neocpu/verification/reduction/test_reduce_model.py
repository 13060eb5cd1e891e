"""Models with planted faults are reduced to a few nodes."""

import needs
import numpy as np
import onnx
import pytest

from neocpu.foundation.errors import UsageError
from neocpu.frontend import models
from neocpu.verification.reduction.checks import Check
from neocpu.verification.reduction.reduce_model import reduce_model
from neocpu.verification.reduction.whole_graph import WholeGraph, inferred_types

LINE = "check {model}"
NETWORKS = (
    *("squeezenet1_0", "densenet121", "mobilenet_v2", "shufflenet_v2_x1_0", "unet"),
    *("resnet18", "inception_v3", "efficientnet_b0", "yolov3_tiny", "resnet101"),
)


def unrun(name):
    """Return a built-in network, the types of its tensors as inferred, without values."""
    model = models.build(name)
    return WholeGraph(model, {value.name: value for value in inferred_types(model)}, {})


def planted(nodes, rng):
    """Return a fault that stays while two nodes exist, one of them a reader of the other."""
    makers = {name: node for node in nodes for name in node.output}
    edges = [(makers[n], node) for node in nodes for n in node.input if n in makers]
    first, second = edges[rng.integers(len(edges))]

    def find(case, seconds):
        onnx.checker.check_model(case.model)
        there = {name: set(node.input) for node in case.model.graph.node for name in node.output}
        both = first.output[0] in there and second.output[0] in there
        return "bug: two nodes" if both else None

    return Check(find, LINE), {first.output[0], second.output[0]}


@pytest.mark.parametrize("name", NETWORKS)
@needs.one_in(5)
def test_planted_faults(name):
    whole = unrun(name)
    check, wanted = planted(whole.model.graph.node, np.random.default_rng(len(name)))
    told = []
    found = reduce_model(whole, check, "part", budget=60, on_smaller=told.append)
    assert {node.output[0] for node in found.case.model.graph.node} == wanted
    assert found.is_smallest
    assert found.failure == "bug: two nodes"
    assert found.nodes == len(whole.model.graph.node)
    assert found.checks < 80
    assert [len(case.operators) for case in told] == sorted({len(c.operators) for c in told})[::-1]
    assert told[-1].model == found.case.model


def test_a_different_failure_does_not_count():
    whole = unrun("squeezenet1_0")

    def find(case, seconds):
        relus = case.operators.count("Relu")
        return "bug: too many" if relus > 3 else "other bug: too few"

    found = reduce_model(whole, Check(find, LINE), "part", budget=60)
    assert found.case.operators == ("Relu",) * 4


def test_the_budget():
    whole = unrun("squeezenet1_0")
    seconds = iter(range(1000))
    check, _ = planted(whole.model.graph.node, np.random.default_rng(0))
    found = reduce_model(whole, check, "part", budget=4, clock=lambda: next(seconds))
    assert not found.is_smallest
    assert 2 < len(found.case.operators) < len(whole.model.graph.node)
    assert check.find(found.case, 1) is not None


def test_a_model_that_passes():
    with pytest.raises(UsageError, match="passes the check, so there is nothing to reduce"):
        reduce_model(unrun("squeezenet1_0"), Check(lambda *_: None, LINE), "part", budget=1)
