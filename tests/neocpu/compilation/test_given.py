"""The options of a set of shapes."""

import numpy as np
import pytest

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.frontend.shapes.requested_shapes import (
    join_sets,
    parse_request,
    parse_set,
    parse_signatures,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:1,3,8,8", ("x", ((1, 3, 8, 8),))),
        ("x:{1,4},3,{8,9}", ("x", ((1, 3, 8), (1, 3, 9), (4, 3, 8), (4, 3, 9)))),
        ("x:{2,1},5", ("x", ((2, 5), (1, 5)))),
        ("a:b=c:1..9,7", ("a:b=c", ((1, 7), (2, 7), (4, 7), (8, 7), (9, 7)))),
        ("x:{1..3,7},5", ("x", ((1, 5), (2, 5), (3, 5), (7, 5)))),
        ("b=1..16", ("b", (1, 2, 4, 8, 16))),
        ("b=3..3", ("b", (3,))),
        ("b={1,5}", ("b", (1, 5))),
        ("h=224..288/32", ("h", (224, 256, 288))),
        ("x:1,{8,16..32/8}", ("x", ((1, 8), (1, 16), (1, 24), (1, 32)))),
        ("sr=16000", ("sr", (16000,))),
        ("s=0.5", ("s", (0.5,))),
    ],
)
def test_texts(text, expected):
    assert parse_set(text) == expected


@pytest.mark.parametrize(
    "text", ["x", "x:", "x:{1,3", "x:1,-3", "x:a,b", "b=1..", "b={1,}", ":1,2"]
)
def test_texts_that_are_no_sets_are_refused(text):
    assert parse_set(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x:{},3", "'{}' is an empty set"),
        ("b={}", "'{}' is an empty set"),
        ("b=9..3", "'9..3' is an empty set"),
        ("b=9..3/2", "'9..3/2' is an empty set"),
        ("b=1..9/0", "a step of 0 never reaches 9; give 1 or more"),
        ("b=32..100/32", "steps of 32 from 32 miss 100; end with 96 or 128"),
        ("h=1..999999999999999999/1", "a set of 999999999999999999 shapes: an artifact has at"),
        ("x:1,3,32..2048/32,32..2048/32", "a set of 4096 shapes: an artifact has at most 64; give"),
        ("x:{1..99},{1..99},{1..99}", "a set of 512 shapes: an artifact has at most 64"),
    ],
)
def test_empty_and_too_large_sets(text, message):
    with pytest.raises(UsageError, match=message):
        parse_set(text)


def test_options_are_taken_side_by_side():
    given = [("x", ((1, 3), (2, 3))), ("y", ((1, 5),)), ("y", ((2, 5),)), ("s", (7,))]
    assert join_sets(given) == [
        {"x": (1, 3), "y": (1, 5), "s": 7},
        {"x": (2, 3), "y": (2, 5), "s": 7},
    ]
    assert join_sets([]) == [{}]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["b={1,4}", "h={7,8,9}"], [(b, h) for b in (1, 4) for h in (7, 8, 9)]),
        (["h={7,8}", "b=1..2"], [(b, h) for h in (7, 8) for b in (1, 2)]),
        (["b={1,4}", "b=6", "h={7,8}"], [(b, h) for b in (1, 4, 6) for h in (7, 8)]),
        (["b=1", "h=7", "b=4", "h=9"], [(1, 7), (4, 9)]),
        (["b={1,4}", "h=7", "h=9"], [(1, 7), (4, 9)]),
        (["b={1,4}", "h=7"], [(1, 7), (4, 7)]),
    ],
)
def test_named_extents_in_braces_are_combined(texts, expected):
    found = join_sets([parse_set(text) for text in texts])
    assert found == [{"b": b, "h": h} for b, h in expected]


def test_combinations_are_taken_beside_the_shapes_of_inputs():
    texts = ["x:{1,2},{5,6}", "b={1,2}", "h={3,4}", "s=0.5"]
    assert [tuple(each.values()) for each in join_sets([*map(parse_set, texts)])] == [
        ((1, 5), 1, 3, 0.5),
        ((1, 6), 1, 4, 0.5),
        ((2, 5), 2, 3, 0.5),
        ((2, 6), 2, 4, 0.5),
    ]


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (
            ["x:{1,2}", "y:{1..2,3}"],
            "2 choices for 'x' and 3 choices for 'y', which are paired",
        ),
        (
            ["x:{1,2}", "b={1,2}", "h={3,4}"],
            "2 choices for 'x' and 4 choices for 'b' with 'h', which are",
        ),
    ],
)
def test_lists_of_other_lengths_contradict_each_other(texts, told):
    with pytest.raises(UsageError, match=told):
        join_sets([*map(parse_set, texts)])


def test_too_many_combinations():
    with pytest.raises(UsageError, match="a set of 100 shapes: an artifact has at most 64"):
        join_sets([("b", tuple(range(1, 11))), ("h", tuple(range(1, 11)))])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([], "an empty set of shapes"),
        ([{"x": (1, 3)}, {"x": (1, 3)}], r"shapes={'x': \(1, 3\)} is given twice"),
        ([{"x": np.array([n, 3])} for n in (1, 2, 1)], r"shapes={'x': \(1, 3\)} is given twice"),
        ([{"x": (n, 3)} for n in range(1, 66)], "a set of 65 shapes"),
        ([(1, 3)], "a sequence of such for a set"),
        (5, "a sequence of such for a set, got 5"),
    ],
)
def test_texts_that_are_no_signatures_are_refused(shapes, message):
    with pytest.raises(UsageError, match=message):
        parse_signatures(shapes)


def test_a_set_is_refused_where_one_shape_is_expected():
    with pytest.raises(UsageError, match=r"got list; neocpu\.compile alone takes a sequence"):
        InputShapes.parse([{"x": (1, 3)}])


@pytest.mark.parametrize(
    ("texts", "one_plan", "expected"),
    [
        (["x:1,3,8..24/8"], False, [{"x": (1, 3, 8)}, {"x": (1, 3, 16)}, {"x": (1, 3, 24)}]),
        (["x:1,3,8..24/8"], True, {"x": (1, 3, range(8, 25, 8))}),
        (["b=1..3", "s=0.5"], False, [{"b": 1, "s": 0.5}, {"b": 2, "s": 0.5}, {"b": 3, "s": 0.5}]),
        (["b=1..3", "s=0.5"], True, {"b": range(1, 4), "s": 0.5}),
        # 65 shapes of one input, of two dimensions, and of two inputs that cannot be paired.
        (["x:2..130/2,3"], False, {"x": (range(2, 131, 2), 3)}),
        (["h=1..5/1", "w=1..13/1"], False, {"h": range(1, 6), "w": range(1, 14)}),
        (["x:1..5/1,7", "y:1..13/1"], False, {"x": (range(1, 6), 7), "y": (range(1, 14),)}),
        (["x:2..128,2..128,2..512"], False, {"x": (*[range(2, 129)] * 2, range(2, 513))}),
        (["h=1..999999999999999999/1"], False, {"h": range(1, 10**18)}),
        (["x:1,3"], False, {"x": (1, 3)}),
    ],
)
def test_ranges_are_a_set_or_sizes(texts, one_plan, expected):
    assert parse_request(texts, one_plan=one_plan) == expected


def test_as_many_shapes_as_a_set_may_have_are_a_set():
    assert len(parse_request(["x:2..128/2"], one_plan=False)) == 64
    assert len(parse_request(["x:1..64/1", "y:65..128/1"], one_plan=False)) == 64


@pytest.mark.parametrize(
    ("texts", "one_plan", "told"),
    [
        (["x:{1,2},3..200/1"], False, "--shape x:{1,2},3..200/1 makes a set beside ranges of"),
        (["x:3..9", "y:{1..3}"], True, "--shape y:{1..3} makes a set beside ranges of sizes: give"),
        (["h=3..9", "h=12"], True, "--shape h=12 makes a set beside ranges of sizes: give ranges"),
        (["x:{1..99},{1..99},{1..99}"], False, "a set of 512 shapes: an artifact has at most 64"),
        (["x:{1..9},3"], True, "--typical is for ranges of sizes"),
        (["x:1,3"], True, "--typical is for ranges of sizes"),
        ([], True, "--typical is for ranges of sizes"),
        (["x:8..100/8"], True, "steps of 8 from 8 miss 100; end with 96 or 104"),
        (["x:8..1000/8,3,8..999/8"], False, "steps of 8 from 8 miss 999; end with 992 or 1000"),
        (["x:8..100/0"], True, "a step of 0 never reaches 100; give 1 or more"),
        (["x:1..3,7", "y:1..5"], False, "3 choices for 'x' and 4 choices for 'y'"),
    ],
)
def test_ranges_beside_sets_and_bad_steps(texts, one_plan, told):
    with pytest.raises(UsageError) as caught:
        parse_request(texts, one_plan=one_plan)
    assert told in caught.value.args[0]


def test_calibration_and_limits_on_errors_are_for_one_size(tmp_path):
    given = {"shapes": {"h": range(1, 9)}, "typical": {"h": 4}}
    data = np.zeros((1, 3, 8, 8), "float32")
    with pytest.raises(UsageError, match="max_error is measured at one size"):
        neocpu.compile("resnet18", max_error=0.1, **given)
    with pytest.raises(UsageError, match=r"calibration data .* are for one size"):
        neocpu.compile_calibrated("resnet18", data, **given)
    with pytest.raises(UsageError, match=r"calibration data .* are for one size"):
        neocpu.compile_fat("resnet18", ("host",), tmp_path / "x.so", calibration=data, **given)
