"""Headers of artifacts whose calls choose extents: texts, and integers at other sizes."""

import json
from dataclasses import replace

import pytest

from neocpu.foundation.errors import UsageError
from neocpu.foundation.size_formulas import Entry, Size, Term
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.plan.pages.arena_picture import arena_blocks
from neocpu.runtime.described_calls import describe_calls
from neocpu.runtime.header import SIZED_FORMAT, ArtifactHeader
from neocpu.runtime.header_parts import Placement
from neocpu.runtime.shape_ranges import Range
from neocpu.runtime.sized_form import SizedForm

ROWS = Size(name="rows", least=2, most=100, step=2, typical=10)
N, HALF, BYTES = (Term(number, is_entry=True) for number in range(3))


@pytest.fixture
def header(linear):
    """Return a header of x[rows,4] -> y[rows/2,4], with an activation of as many elements as y."""
    form = SizedForm(
        sizes=(ROWS,),
        entries=(Entry("//", N, Term(2)), Entry("*", HALF, Term(16))),
        inputs=((N, Term(4)),),
        outputs=((HALF, Term(4)),),
        activations=((HALF, Term(4)),),
        offsets=(BYTES,),
        arena_bytes=BYTES,
        extents=((N,),),
    )
    return replace(
        linear.header,
        name="halves",
        format=SIZED_FORMAT,
        sized=form,
        inputs=(TensorSpec("x", "float32", (10, 4)),),
        outputs=(TensorSpec("y", "float32", (5, 4)),),
        row_counts=(None,),
        weights=(),
        activations=(Placement(80, "float32", (5, 4)),),
        arena_bytes=80,
        calls=(("half", (2, 0, 1)),),
        returns=(1,),
    )


def test_headers_are_read_as_they_were_written(header):
    assert ArtifactHeader.from_json(json.loads(header.encode())) == header


def test_texts_have_ranges(header):
    assert "x: float32[2..100/2, 4] -> y: float32[1..50, 4]" in header.summary
    assert "x: float32[2..100/2, 4]" in str(header)
    assert "planned for" in str(header)
    assert header.input_ranges == {"x": (ROWS, 4)}


def test_a_shape_gives_the_integers_of_its_size(header):
    found = header.of({"x": (60, 4)})
    assert [spec.shape for spec in (*found.inputs, *found.outputs)] == [(60, 4), (30, 4)]
    assert found.activations == (Placement(480, "float32", (30, 4)),)
    assert found.arena_bytes == 480
    assert found.input_ranges == {"x": (ROWS, 4)}
    assert found.sized_signatures.outputs == ((Range(1, 50), 4),)
    assert header.of({}) == header


@pytest.mark.parametrize("shapes", [{"y": (60, 4)}, {"x": 3}])
def test_other_inputs_and_values_are_refused(header, shapes):
    with pytest.raises(UsageError, match=r"halves is compiled for x\[2\.\.100/2,4\], and no other"):
        header.of(shapes)


def test_extents_of_kernels_have_no_bytes(header):
    (call,) = describe_calls(header)
    assert call.others == 80 + 160


def test_pages_know_tensors_without_data(header):
    (block,) = arena_blocks(header)
    assert (block.offset, block.size, block.first, block.last) == (80, 80, 0, 0)
