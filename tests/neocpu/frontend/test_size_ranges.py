"""Ranges of sizes that a caller requests, and the sizes that the plan is made for."""

import math

import pytest

from neocpu.compilation.compile_options import CompileOptions
from neocpu.foundation.errors import UsageError
from neocpu.foundation.size_formulas import Size
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.frontend.shapes.size_ranges import SizeRanges

SIDES = range(32, 2049, 32)


def parse(shapes, typical=None, batch=None):
    found = CompileOptions.parse(shapes=shapes, typical=typical, batch=batch, threads=1)
    assert found.ranges is not None
    assert found.signatures == (found.ranges.typical,)
    return found.ranges


def test_ranges_of_shapes_and_of_named_dimensions():
    shapes = {"x": (1, 3, SIDES, 64), "n": range(1, 9), "y": (range(5, 21, 5),), "sr": 16000}
    ranges = parse({**shapes, "m": (4, 5)}, {"x": (1, 3, 736, 64), "n": 4}, batch=2)
    assert ranges.sizes == (
        Size(name="x[2]", least=32, most=2048, step=32, typical=736),
        Size(name="n", least=1, most=8, step=1, typical=4),
        Size(name="y[0]", least=5, most=20, step=5, typical=10),
    )
    assert ranges.text == "x:1,3,32..2048/32,64 y:5..20/5 n=1..8"
    assert ranges.at((96, 8, 20)) == InputShapes(
        {"m": (4, 5), "x": (1, 3, 96, 64), "y": (20,)}, batch=2, values={"sr": 16000, "n": 8}
    )
    assert ranges.typical == ranges.at((736, 4, 10))
    assert ranges.largest == ranges.at((2048, 8, 20))


@pytest.mark.parametrize("extents", [SIDES, range(7, 300, 5), range(3, 10**6)])
def test_the_default_is_nearest_to_the_geometric_middle(extents):
    middle = math.sqrt(extents[0] * extents[-1])
    (size,) = parse({"h": extents}).sizes
    assert abs(size.typical - middle) == pytest.approx(min(abs(e - middle) for e in extents))


def test_a_shape_without_a_name_is_of_the_first_input_with_ranges():
    shapes = {"m": (4, 5), "x": (1, SIDES), "y": (range(1, 9),)}
    assert parse(shapes, (1, 96)).typical.by_name == {"m": (4, 5), "x": (1, 96), "y": (3,)}


def test_ranges_of_one_extent_are_no_sizes():
    shapes = {"x": (1, range(7, 8), SIDES), "h": range(9, 10)}
    ranges = parse(shapes, {"x": (1, 7, 64)})
    assert [size.name for size in ranges.sizes] == ["x[2]"]
    assert ranges.typical == InputShapes({"x": (1, 7, 64)}, values={"h": 9})
    options = CompileOptions.parse(shapes={"x": (1, range(7, 8))})
    assert options.ranges is None
    assert options.signatures == (InputShapes({"x": (1, 7)}),)


def test_shapes_without_ranges_are_none():
    for shapes in (None, {}, {"x": (1, 3), "h": 7}, [{"x": (1, 3)}, {"x": (2, 3)}]):
        assert SizeRanges.parse(shapes) is None


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        ({"x": (1, range(9, 9))}, "the range of sizes of 'x[1]' is empty: end it after"),
        ({"h": range(9, 3, -2)}, "the range of sizes of 'h' goes down from 9: let it go up"),
        ({"h": range(5)}, "'h' cannot be 0: extents of shapes with ranges are 1 to 2147483648"),
        ({"x": (0, SIDES)}, "'x[0]' cannot be 0: extents of shapes with ranges are 1 to"),
        ({"h": range(1, 2**31 + 2)}, "'h' cannot be 2147483649: extents of shapes with"),
        ({"x": (SIDES, 7.5)}, "extents of 'x[1]' are whole numbers or ranges of them, got [7.5]"),
        ({"x": (range(1, 9),) * 17}, "17 ranges of sizes: one plan has at most 16; fix some"),
        (
            {"x": (SIDES, range(1, 2**20))},
            "shapes={'x': (range(32, 2049, 32), range(1, 1048576))}: the largest has 2147481600 "
            "elements; at most 1073741824 are supported: end ranges sooner",
        ),
        ([{"x": (1, SIDES)}], "one mapping: give ranges or a set, not both"),
        ([{"x": (1, 3)}, {"h": SIDES}], "one mapping: give ranges or a set, not both"),
    ],
)
def test_ranges_that_are_refused(shapes, told):
    with pytest.raises(UsageError) as caught:
        CompileOptions.parse(shapes=shapes)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("typical", "told"),
    [
        (
            (1, 3, 730, 64),
            "typical={'x': (1, 3, 730, 64)}: 'x[2]' is 32..2048/32, which 730 is not",
        ),
        ((1, 3, 730, 64), "typical={'x': (1, 3, 730, 64)}: 'x[2]' is 32..2048/32, which 730"),
        ((1, 3, 730, 64), "which 730 is not in; the nearest is 736"),
        ({"x": (1, 3, 9000, 64)}, "the nearest is 2048"),
        ({"x": (1, 3, 1, 64)}, "the nearest is 32"),
        ((1, 3, 64, 65), "typical={'x': (1, 3, 64, 65)}: dimension 3 is 64 at all sizes; give 64"),
        ((1, 3, 64), "has 3 dimensions, shapes={'x': (1, 3, range(32, 2049, 32), 64)} has 4"),
        ({"h": 0}, "typical={'h': 0}: 'h' is 1..8, which 0 is not in; the nearest is 1"),
        ({"h": 2.5}, "extents of 'h' are whole numbers or ranges of them, got [2.5]"),
        ({"h": (1, 2)}, "typical={'h': (1, 2)}: no such range is given, but x:1,3,32"),
        ({"x": 64}, "typical={'x': 64}: no such range is given, but x:1,3,32..2048/32,64 h=1..8"),
        ({"sr": 3}, "typical={'sr': 3}: no such range is given, but x:1,3,32..2048/32,64 h=1..8"),
        ({"xx": (1, 2)}, "did you mean 'x'?"),
        ("64", "typical sizes are a mapping from names to shapes or numbers"),
    ],
)
def test_typical_sizes_that_are_refused(typical, told):
    with pytest.raises(UsageError) as caught:
        parse({"x": (1, 3, SIDES, 64), "h": range(1, 9), "sr": 16000}, typical)
    assert told in str(caught.value)


def test_the_value_of_an_input_has_no_range():
    ranges = parse({"x": (1, SIDES), "sr": range(1, 9)})
    ranges.refuse_unplaced({0, 1})
    with pytest.raises(UsageError, match=r"^shapes={'sr': range\(1, 9\)}: no input has this ext"):
        ranges.refuse_unplaced({0})


def test_typical_sizes_without_a_name_or_a_range():
    with pytest.raises(UsageError, match="the ranges are of named dimensions; name these, as h=3"):
        parse({"h": range(1, 9)}, (1, 3))
    for shapes in (None, {"x": (1, 3)}, [{"x": (1, 3)}], {"x": (1, range(3, 4))}):
        with pytest.raises(UsageError, match="typical is for ranges of sizes"):
            CompileOptions.parse(shapes=shapes, typical=(1, 3))
