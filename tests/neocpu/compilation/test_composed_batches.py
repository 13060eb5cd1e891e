"""Batches for which a module of a set of shapes has no plan."""

import weakref
from dataclasses import replace
from itertools import zip_longest

import numpy as np
import pytest

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.composed.batch_plans import TABLE
from neocpu.runtime.composed.composed_batches import ComposedBatches
from neocpu.runtime.header import SET_FORMAT, ArtifactHeader
from neocpu.runtime.signature_sets import SignatureSet
from neocpu.runtime.signatures import Signature


def _header(signatures, functions=("a",) * 4, mixed=None, took=()):
    """Return the header of an artifact whose plans compute ``functions`` of a row."""
    each = [
        ArtifactHeader(
            name="net",
            neocpu_version="1",
            tvm_version="2",
            ffi_version="3",
            target="llvm",
            machine="x86_64",
            isa_features=(),
            threads=1,
            inputs=one.inputs,
            outputs=one.outputs,
            row_counts=(None,) * len(one.outputs),
            row_function=function,
            rows_mixed=mixed,
            stored_plan={} if seconds is None else {"call_seconds": seconds},
        )
        for one, function, seconds in zip_longest(
            signatures.all, functions[: len(signatures.all)], took
        )
    ]
    first, *others = each
    return replace(first, others=tuple(others), format=SET_FORMAT)


class FakeSession:
    """``y`` is 2 x, and ``z`` the sum of a row of x; it notes the rows of its runs."""

    def __init__(self, sizes=(1, 2, 4, 8), **known):
        self.signatures = SignatureSet([self.signature(size) for size in sizes])
        self.metadata = _header(self.signatures, **known).encode()
        self.runs = []

    @staticmethod
    def signature(rows):
        inputs = (TensorSpec("x", "float32", (rows, 3)),)
        outputs = (TensorSpec("y", "float32", (rows, 3)), TensorSpec("z", "float32", (rows,)))
        return Signature(inputs, outputs)

    def run(self, number, inputs, out=None):
        (x,) = inputs
        assert x.shape == self.signatures.all[number].inputs[0].shape
        self.runs.append(len(x))
        results = 2 * x, x.sum(axis=1)
        for array, result in zip(out or (), results, strict=bool(out)):
            array[...] = result
        return results


def rows(count):
    return np.random.default_rng(count).standard_normal((count, 3)).astype("float32")


@pytest.mark.parametrize("count", [3, 5, 7, 9, 31, TABLE + 1, 3 * TABLE + 5])
def test_any_batch(count):
    session = FakeSession()
    x = rows(count)
    batches = ComposedBatches(session)
    for out in (None, [np.zeros((count, 3), "float32"), np.zeros(count, "float32")]):
        y, z = batches.run(session.signature(count), [x], out)
        np.testing.assert_array_equal(y, 2 * x)
        np.testing.assert_array_equal(z, x.sum(axis=1))
        assert out is None or (y is out[0] and z is out[1])
    timing = 4 * 4  # runs of each plan
    assert sum(session.runs[timing:]) >= 2 * count


@pytest.mark.parametrize(
    ("took", "done"),
    [
        # A batch of eight takes longer than two of four.
        ((1.0, 1.9, 3.0, 8.0), {1: [1], 2: [2], 4: [4], 8: [4, 4], 6: [4, 2]}),
        # A batch of two takes hardly less than two of one.
        ((1.0, 1.99, 3.0, 5.9), {2: [1, 1], 3: [1, 1, 1], 5: [4, 1], 8: [8]}),
        ((1.0, 2.5, 4.5, 9.0), {1: [1], 2: [1, 1], 4: [1] * 4, 8: [1] * 8}),
        ((5.0, 3.0, 4.5, 8.0), {1: [2], 3: [4], 8: [8]}),
        ((1.0, 2.5, 4.5, None), {2: [2], 4: [4], 8: [8]}),
        ((1.0, 2.5, -4.5, 9.0), {2: [2], 8: [8]}),
        ((), {8: [8]}),
    ],
)
def test_batches_are_composed_of_the_plans_that_were_fastest_at_compilation(took, done):
    session = FakeSession(took=took)
    batches = ComposedBatches(session)
    for count, runs in done.items():
        number = session.signatures.find([(count, 3)])
        signature = replace(session.signature(count), number=number)
        x = rows(count)
        session.runs.clear()
        if not batches.does(signature):
            assert runs == [count]
            continue
        y, _ = batches.run(signature, [x])
        np.testing.assert_array_equal(y, 2 * x)
        assert session.runs == runs


def test_batches_whose_rows_depend_on_each_other_are_never_split():
    session = FakeSession(took=(1.0, 9.0, 9.0, 9.0), mixed="Softmax 'y'")
    assert not ComposedBatches(session).does(replace(session.signature(8), number=3))


def test_outputs_may_overlap_inputs():
    session = FakeSession()
    x = rows(6)
    memory = np.concatenate([x, x])
    y, _ = ComposedBatches(session).run(
        session.signature(6), [memory[:6]], [memory[3:9], np.empty(6, "float32")]
    )
    np.testing.assert_array_equal(y, 2 * x)


def test_the_later_of_two_overlapping_outputs_wins():
    """The rule holds for all rows, as in a batch with its own plan, not for each run alone."""
    session = FakeSession(took=(1.0, 1.9, 3.0, 8.0))  # 4 rows and 2
    x = rows(6)
    memory = np.zeros(18, "float32")
    out = [memory.reshape(6, 3), memory[12:]]
    y, z = ComposedBatches(session).run(session.signature(6), [x], out)
    np.testing.assert_array_equal(z, x.sum(axis=1))
    assert y is out[0]
    np.testing.assert_array_equal(y[:4], 2 * x[:4])


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (
            {"functions": (), "mixed": "mean 'm' reduces over the rows of a batch"},
            "mean 'm' reduces",
        ),
        ({"functions": ("a", "b", "a", "a")}, "of a row depends on how many there are"),
        ({"functions": ()}, "compile it again"),
    ],
)
def test_rows_not_proven_independent_are_not_composed(known, reason):
    session = FakeSession(**known)
    batches = ComposedBatches(session)
    for _ in range(2):
        with pytest.raises(UsageError, match=rf"compiled for x\[1,3\].* other batch: .*{reason}"):
            batches.run(session.signature(3), [rows(3)])
    assert not session.runs


@pytest.mark.parametrize(
    ("sizes", "shape", "plans"),
    [
        ((1, 4), (3, 3), {1: 0, 4: 1}),
        ((4,), (3, 3), {}),
        ((0, 4), (3, 3), {}),
        ((1, 4), (3, 2), {}),
        ((1, 4), (0, 3), {}),
        ((1, 4), (), {}),
    ],
)
def test_plans_may_differ_only_in_the_batch(sizes, shape, plans):
    assert FakeSession(sizes).signatures.batch_plans([shape]) == plans


def test_outputs_that_have_no_rows_are_not_composed():
    bounded = TensorSpec("y", "float32", (4, 3), bounded=True)
    for output in (bounded, TensorSpec("y", "float32", (8,)), TensorSpec("y", "float32", ())):
        inputs = [(TensorSpec("x", "float32", (n, 3)),) for n in (1, 4)]
        signatures = SignatureSet([Signature(one, (output,)) for one in inputs])
        assert signatures.batch_plans([(2, 3)]) == {}


def test_rows_that_are_wider_in_larger_batches_are_not_composed():
    widths = SignatureSet(
        [
            Signature((TensorSpec("x", "float32", (n, 3)),), (TensorSpec("y", "float32", (n, n)),))
            for n in (1, 4)
        ]
    )
    assert widths.batch_plans([(2, 3)]) == {}


def test_a_closed_module_is_not_kept_alive(sized):
    module = neocpu.load(sized.path, 1)
    module(np.zeros((5, 3, 9, 7), "float32"))
    session = weakref.ref(module._calls.session._handle)
    module.close()
    assert session() is None


def test_a_call_that_outlives_its_module_does_not_keep_it_alive(sized):
    x = np.zeros((5, 3, 9, 7), "float32")
    module = neocpu.load(sized.path, 1)
    expected = module(x)
    call = module._calls.of((x,), None)  # it has been checked, and is about to run
    session = weakref.ref(module._calls.session._handle)
    module.close()
    for found, known in zip(call(), expected, strict=True):
        assert found.tobytes() == known.tobytes()
    del call
    assert session() is None


def test_a_module(sized):
    x = np.random.default_rng(0).standard_normal((8, 3, 9, 7)).astype("float32")
    with neocpu.load(sized.path, 1) as module:
        for count in (2, 5, 8):
            y, mean = module(x[:count])
            expected = sized.reference(x[:count])
            np.testing.assert_allclose(y, expected[0], rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(mean, expected[1], rtol=1e-4, atol=1e-4)
            found = module.run({"x": x[:count]})
            assert found["y"].tobytes() == y.tobytes()
        assert module.submit(x[:2]).result()[0].shape == (2, 5, 9, 7)
        with pytest.raises(UsageError, match="expected float32"):
            module(x[:2], out=[np.empty((2, 5, 9, 7), "float32"), np.empty((1, 13), "float32")])
