"""The proof that rows of a batch are independent, against ONNX's own evaluator."""

import needs
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from neocpu.compilation.read_model import load_for_import
from neocpu.frontend import models
from neocpu.frontend.importer import import_relax
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.graph.simplify import simplify
from neocpu.ir.row_analysis.proof import Rows, prove_independent_rows
from neocpu.ir.row_analysis.site import MixedError, find_part
from tests.neocpu.ir.row_analysis.batch_models import (
    COUNTED,
    INDEPENDENT,
    MIXED,
    RECURRENT,
    Case,
    recurrent,
)

ROWS = 3


def proof(case: Case, rows: int) -> Rows:
    shapes = InputShapes.parse({"x": case.shape(rows)})
    return prove_independent_rows(simplify(import_relax(load_for_import(case.model(), shapes))))


def batch(case: Case) -> np.ndarray:
    rng = np.random.default_rng(1)
    if case.x.startswith("int64"):
        return rng.integers(0, 2, case.shape(ROWS))
    return rng.standard_normal(case.shape(ROWS)).astype("float32")


def evaluated(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return ReferenceEvaluator(model).run(None, {"x": x})[0]


def is_independent(case: Case) -> bool:
    """Return whether rows have the same results alone, and at other places of a batch."""
    model, x = case.model(), batch(case)
    together = evaluated(model, x)
    alone = np.concatenate([evaluated(model, x[[row]]) for row in range(ROWS)])
    moved = evaluated(model, x[[1, 2, 0]])[[2, 0, 1]]
    return all(
        one.shape == together.shape and np.allclose(one, together, rtol=1e-4, atol=1e-5)
        for one in (alone, moved)
    )


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_rows_are_proven_with_one_digest_for_all_batches(name: str):
    case = INDEPENDENT[name]
    assert is_independent(case)
    found = {rows: proof(case, rows) for rows in (1, 2, ROWS)}
    assert [each.mixed for each in found.values()] == [None] * 3
    assert len({each.function for each in found.values()}) == 1


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_depend_on_each_other_are_not_proven_independent(name: str):
    case = MIXED[name]
    assert not is_independent(case)
    found = proof(case, ROWS)
    assert found.function is None
    assert "batch" in str(found.mixed)


# VGG has no operator that others lack, and takes 18 seconds.
NETWORKS = [name for name in sorted(models.MODELS) if not name.startswith("vgg")]


@needs.one_in(12)
@pytest.mark.parametrize("name", ["shufflenet_v2_x1_0", *NETWORKS])
def test_images_of_a_built_in_network_are_independent(name: str):
    found = []
    for rows in (1, 2):
        loaded = load_for_import(name, InputShapes.parse(None, rows))
        found.append(prove_independent_rows(simplify(import_relax(loaded)), loaded.row_counts))
    assert [each.mixed for each in found] == [None, None]
    assert found[0].function == found[1].function


def test_rows_that_depend_on_their_number_have_other_digests_for_other_batches():
    two, three = proof(COUNTED, 2), proof(COUNTED, 3)
    assert two.mixed is three.mixed is None
    assert two.function != three.function


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_weights_have_one_digest_in_whatever_order_a_batch_packs_them(name: str):
    case = recurrent(name)
    found = [proof(case, rows) for rows in (1, 4, 12)]
    assert [each.mixed for each in found] == [None] * 3
    assert len({each.function for each in found}) == 1
    changed = recurrent(name)
    changed.constants["r"] = case.constants["r"][..., ::-1]
    assert proof(changed, 4).function != found[0].function


def test_a_batch_of_one_row_alone_needs_no_proof():
    case = MIXED["another row"]
    shapes = InputShapes.parse({"x": case.shape(1)})
    mod = simplify(import_relax(load_for_import(case.model(), shapes)))
    assert prove_independent_rows(mod, other_batches=False) == Rows()


@pytest.mark.parametrize("shape", [(6, 4, 5), (24, 5), (4, 6, 5), (2, 3, 4, 5), (1, 120), (5, 24)])
@pytest.mark.parametrize("rows", [2, 3])
def test_the_axis_of_the_rows_is_found_after_a_reshape(shape: tuple[int, ...], rows: int):
    size = int(np.prod(shape))
    for stride in (each for each in range(1, size) if size % (each * rows) == 0):
        places = np.arange(size) // stride % rows
        try:
            part = find_part(stride, shape, rows)
        except MixedError:
            continue
        assert part.stride(shape) == stride
        assert part.extent(rows) == shape[part.axis]
        along = np.arange(shape[part.axis]) // part.inner % rows
        extents = [-1 if axis == part.axis else 1 for axis in range(len(shape))]
        spread = np.broadcast_to(along.reshape(extents), shape)
        np.testing.assert_array_equal(places.reshape(shape), spread)
