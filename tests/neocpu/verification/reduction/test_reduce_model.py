"""Models with planted faults are reduced to a few nodes."""

import needs
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neocpu.foundation.errors import UsageError
from neocpu.frontend import models
from neocpu.verification.reduction.checks import Check
from neocpu.verification.reduction.reduce_model import reduce_model, shrink
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


def last(whole, fails):
    """Return the smallest failing part, and the number of attempts."""
    asked = []

    def counted(part):
        assert part
        assert list(part) == sorted(set(part))
        asked.append(part)
        return fails(part)

    smallest = tuple(whole)
    for part in shrink(whole, counted):
        assert len(part) < len(smallest)
        assert part in asked
        smallest = part
    return smallest, asked


@given(st.integers(1, 700), st.data())
def test_needed_elements_are_kept(count, data):
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))
    smallest, _ = last(range(count), lambda part: needed <= set(part))
    assert set(smallest) == needed


@given(st.integers(1, 60), st.integers(0, 2**32))
def test_no_element_can_be_left_out(count, seed):
    """This holds for any failure, even a random one."""
    whole = tuple(range(count))

    def fails(part):
        return part == whole or hash((part, seed)) % 3 == 0

    smallest, _ = last(whole, fails)
    for at in range(len(smallest)):
        rest = smallest[:at] + smallest[at + 1 :]
        assert not rest or not fails(rest)


def test_neighbours_are_found_in_few_steps_and_little_work():
    for first in (0, 333, 349, 350, 697):
        needed = {first, first + 1, first + 2}
        smallest, asked = last(range(700), lambda part, needed=needed: needed <= set(part))
        assert set(smallest) == needed
        assert len(asked) < 60
        assert sum(map(len, asked)) < 8 * 700


def test_a_constant_failure_shrinks_to_one_element():
    assert last(range(9), lambda part: True)[0] == (0,)
    assert last(range(1), lambda part: True)[0] == (0,)
