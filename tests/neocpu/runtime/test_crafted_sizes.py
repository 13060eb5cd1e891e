"""Sizes and formulas that cannot be: refused at load, or for the sizes that meet them."""

import json
import subprocess
import sys

import numpy as np
import pytest
from forgery import forge, forge_header
from header_mutants import mutant
from sized_artifact import (
    E_POOL,
    E_SCALE,
    E_TOTAL,
    POOLED,
    SCALED,
    WEIGHT,
    X,
    inputs_of,
    reference,
    sized_header,
)
from sized_calls import RefusedError, SizedModel
from test_kernel_tables import OUTSIDE, TABLE, Table

ARTIFACT = 8
BETWEEN = 21
"""The number of a value that is 0 at the typical width and the largest one, and else positive."""
ENTRIES = [["-", [1], 5], ["-", 48, [1]], ["*", [19], [20]], ["max", [BETWEEN], 0]]
"""Entries behind those of the artifact."""
POSITIVE = 22
"""The same, but 0 where that is negative, too."""


def load(path):
    with SizedModel(path) as model:
        return [each.tobytes() for each in run(model, 8, 5)]


def run(model, height, width):
    x = inputs_of(height, width)
    return model.run((height, width), x, [each.shape for each in reference(*x)])


def refused(path, change):
    """Return the message with which a header is refused that ``change`` has edited."""
    with pytest.raises(RefusedError) as caught:
        load(changed(path, change))
    assert caught.value.status == ARTIFACT
    assert "\n" not in str(caught.value)
    return str(caught.value)


def changed(path, change):
    header = sized_header(path)
    change(header)
    return forge_header(path, path.with_name("changed.so"), header)


def at(*way):
    """Return a function that sets what lies there in a header."""

    def set_to(value):
        def change(header):
            inner = header
            for step in way[:-1]:
                inner = inner[step]
            inner[way[-1]] = value

        return change

    return set_to


size = {"name": "h", "least": 2, "most": 64, "step": 2, "typical": 8}
width = {**size, "name": "w", "step": 1}


@pytest.mark.parametrize(
    "sizes",
    [
        *(None, 7, {}, [], [7, width], [{}, width], [size, width, {**width, "name": "z"}]),
        *([{**size, "name": name}, width] for name in (7, None, "w", "h\0")),
        *([{**size, "least": least}, width] for least in (0, -2, 3, 10, 66, 2.0, "2", [0])),
        *([{**size, "most": most}, width] for most in (0, 6, 65, 2**41, [0])),
        *([{**size, "step": step}, width] for step in (0, -2, 4, 2**41)),
        *([{**size, "typical": typical}, width] for typical in (0, 7, 66, None)),
        [{**width, "name": f"{number}"} for number in range(17)],
    ],
)
def test_sizes_that_cannot_be(sized, sizes):
    assert "malformed header (sizes)" in refused(sized, at("sizes")(sizes))


def test_sizes_are_extents_of_inputs(sized):
    def change(header):
        header["inputs"][0]["shape"] = [1, 2, [0], [18]]

    assert "malformed header (sizes)" in refused(sized, change)


@pytest.mark.parametrize(
    "entry",
    [
        *(7, None, {}, [], "+", ["+"], ["+", 1], ["+", 1, 2, 3], ["+", [0], [1], [2]]),
        *(["/", 1, 2], ["%", 1, 2], ["min", 1, 2], [7, 1, 2], [None, 1, 2], ["max\0", 1, 2]),
        *(["+", 1, 1.5], ["+", "1", 1], ["+", None, 1], ["+", True, 1], ["+", {}, 1]),
        # References to themselves, to later ones, to none, and other lists.
        *(["+", [19], 1], ["+", 1, [20]], ["+", [99], 1], ["+", [2**40], 1], ["+", [-1], 1]),
        *(["+", [], 1], ["+", [0, 1], 1], ["+", [[0]], 1], ["+", [0.0], 1], ["+", ["0"], 1]),
        # More than 64 bits, at once or for the typical sizes.
        *(["*", 2**62, 2], ["*", [0], 2**61], ["+", 2**62, 2**62], ["-", -(2**62), 2**62 + 1]),
        *(["+", 2**63, 0], ["+", 10**30, 0], ["*", -(2**62), -2], ["*", [2], 2**60]),
        # Divisors that are not positive.
        *(["//", 1, 0], ["//", [0], -1], ["//", 1, [17]], ["//", [0], -(2**62)]),
    ],
)
def test_values_that_cannot_be(sized, entry):
    def change(header):
        if entry == ["//", 1, [17]]:
            header["values"][15] = ["-", [0], [0]]
        header["values"].append(entry)

    assert "malformed header (values)" in refused(sized, change)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        (["//", -7, 2], -4),
        (["//", 7, 2], 3),
        (["//", -8, 2], -4),
        (["//", ["-"], 64], -1),
        (["max", -3, -5], -3),
        (["-", 2, 5], -3),
        (["*", -(2**31), 2**31], -(2**62)),
        (["+", -(2**62), -(2**62) + 1], -(2**63) + 1),
        (["//", -(2**63) + 1, 2**62], -2),
    ],
)
def test_values_round_down(sized, entry, value):
    """An extent of 7 + value - value is 7 if the value is right: then the model runs as before."""

    def change(header):
        if entry[1] == ["-"]:
            header["values"].append(["-", 0, 1])
            entry[1] = [19]
        number = 2 + len(header["values"])
        header["values"] += [
            entry,
            ["-", [number], value],
            ["*", [number + 1], [number + 1]],
            ["+", [0], [number + 2]],
        ]
        header["activations"][0][2] = [1, 2, [number + 3], [1]]

    assert load(changed(sized, change)) == load(sized)


@pytest.mark.parametrize(
    ("change", "blamed"),
    [
        (at("plans")([]), "plans"),
        (at("prologue")({}), "prologue"),
        (at("repeats")([]), "repeats"),
        (at("slices")([]), "slices"),
        (at("values")(None), "values"),
        (at("extents")(None), "extents"),
        (at("extents")([7]), "extents"),
        (at("extents", 0)([[0], [99]]), "extents"),
        (at("extents", 0)([[0], "w"]), "extents"),
        (at("extents", 0)([[0], 1.5]), "extents"),
        (at("extents")([]), "calls"),
        (at("inputs", 0, "shape")([1, 2, [0], [1], [99]]), "inputs"),
        (at("inputs", 0, "shape")([1, [[0]], [0], [1]]), "inputs"),
        (at("inputs", 0, "shape")([1, [], [0], [1]]), "inputs"),
        (at("inputs", 0, "shape")([1, -2, [0], [1]]), "inputs"),
        (at("outputs", 0, "shape", 2)([99]), "outputs"),
        (at("outputs", 0, "shape", 2)([0]), "returns"),
        # Less than nothing: the height is 8, the width 5.
        (at("outputs", 0, "shape", 2)([19]), "outputs"),
        (at("activations", 1, 0)([0]), "activations"),
        (at("activations", 1, 0)([19]), "activations"),
        (at("activations", 0, 2)([1, 2, [0], [2]]), "activations"),
        (at("arena_bytes")([15]), "activations"),
        (at("arena_bytes")([99]), "arena_bytes"),
        (at("arena_bytes")([19]), "arena_bytes"),
        # Only shapes and places of activations depend on sizes.
        (at("weights", 0, 0)([0]), "weights"),
        (at("weights", 0, 2)([[7]]), "weights"),
        (at("calls", 1)(["twice", [0], POOLED]), "calls"),
        (at("launches")([[[0], 2]]), "launches"),
        (at("returns", 0)([0]), "returns"),
        (at("returns", 0)(E_SCALE), "returns"),
        (at("threads")([0]), "threads"),
        (at("row_counts")([[0], None]), "row_counts"),
    ],
)
def test_what_cannot_be_is_named(sized, change, blamed):
    def edit(header):
        header["values"].append(["-", [1], [0]])
        change(header)

    said = refused(sized, edit)
    assert f"malformed header ({blamed})" in said


def test_fixed_models_refer_to_nothing(linear, tmp_path):
    fields = linear.header.to_json()
    fields["sizes"], fields["values"], fields["extents"] = [size], [], []
    for where in ("inputs", "outputs"):
        header = json.loads(json.dumps(fields))
        header[where][0]["shape"][0] = [0]
        path = forge_header(linear.path, tmp_path / "a.so", header)
        with pytest.raises(RefusedError, match=rf"malformed header \({where}\)"):
            load(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        # Other extents: their product, or one of them, is not that of the tensors.
        (at("extents", 0)([[0], [0]]), "call 0, of 'scale', has a tensor of another size or type"),
        (at("extents", 0)([[0], -5]), "call 0, of 'scale', has a tensor of another size or type"),
        (at("extents", 1, 2)([1]), "call 2, of 'pool', has a tensor of another size or type"),
        (at("extents", 0)([2**62, 2]), "call 0, of 'scale', has a tensor of another size or type"),
        # Of another number.
        (at("extents", 0)([[0]]), "call 0, of 'scale', has other extents than its kernel reads"),
        (at("extents", 0)([[0], [1], 7]), "call 0, of 'scale', has other extents than its kernel"),
        (at("extents", 0)([]), "call 0, of 'scale', has other extents than its kernel reads"),
        (at("calls", 0, 1)(E_POOL), "call 0, of 'scale', has other extents than its kernel reads"),
        (at("calls", 2, 1)(E_SCALE), "call 2, of 'pool', has other extents than its kernel reads"),
        # What is no extents, and extents where they are not to be.
        (at("calls", 0, 1)(WEIGHT), "call 0, of 'scale', has other extents than its kernel reads"),
        (at("calls", 1)(["twice", E_TOTAL, POOLED]), "call 1, of 'twice', has a tensor of another"),
        (at("calls", 1)(["twice", WEIGHT, E_TOTAL]), "call 1, of 'twice', has a tensor of another"),
        (at("calls", 0)(["scale", E_SCALE, X, WEIGHT, X]), "writes an input or a weight"),
        (at("calls", 0)(["scale", E_SCALE, SCALED, WEIGHT, SCALED]), "writes what it reads"),
        (at("calls", 0)(["scale", X, WEIGHT, SCALED]), "call 0, of 'scale', which takes others"),
        (at("calls", 0, 0)("none"), "call 0, of 'none', which the code has not"),
        (at("launches")([[2, 2]]), "writes what one beside it has"),
    ],
)
def test_calls_that_the_code_does_not_have(sized, change, said):
    assert said in refused(sized, change)


def test_launches_of_calls_for_any_size(sized):
    path = changed(sized, at("launches")([[0, 2]]))
    with SizedModel(path, 2) as model:
        for sizes in ((8, 5), (10, 9), (64, 48), (2, 3)):
            for one, other in zip(run(model, *sizes), reference(*inputs_of(*sizes)), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def between(change):
    """Return a change of a header with the values `BETWEEN` and `POSITIVE`, and others behind."""

    def edit(header):
        assert len(header["values"]) + 2 == 19
        header["values"] += ENTRIES
        change(header)

    return edit


def more(*entries, then):
    def change(header):
        header["values"] += entries
        then(header)

    return between(change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (more(["*", [POSITIVE], 2**62], then=lambda _: None), "(values, for h=8, w=6)"),
        (
            more(["-", 1, [POSITIVE]], ["//", [0], [23]], then=lambda _: None),
            "(values, for h=8, w=6)",
        ),
        (
            more(["-", [7], [POSITIVE]], then=at("inputs", 1, "shape", 1)([23])),
            "(inputs, for h=8, w=6)",
        ),
        (
            more(["-", [16], [POSITIVE]], then=at("arena_bytes")([23])),
            "(activations, for h=8, w=6)",
        ),
        (
            more(["+", [14], [POSITIVE]], then=at("activations", 2, 0)([23])),
            "(activations, for h=8, w=6)",
        ),
        (
            more(
                ["*", [POSITIVE], 1 << 20],
                ["+", [16], [23]],
                then=at("arena_bytes")([24]),
            ),
            "for h=8, w=6: this takes ",
        ),
        (
            more(["+", [0], [POSITIVE]], then=at("extents", 0)([[23], [1]])),
            "call 0, of 'scale', has a tensor of another size or type",
        ),
        (
            more(["*", [POSITIVE], -64], ["+", [14], [23]], then=at("activations", 2, 0)([24])),
            "(activations, for h=8, w=6)",
        ),
    ],
)
def test_some_sizes_are_refused_and_others_run(sized, change, said):
    """A width between the typical and the largest one may be wrong alone, and is found then."""
    with SizedModel(changed(sized, change)) as model:
        for _ in range(2):
            for height in (8, 64):
                check(model, height, 5)
                check(model, height, 48)
            with pytest.raises(RefusedError) as caught:
                run(model, 8, 6)
            assert caught.value.status == ARTIFACT
            assert said in str(caught.value)
            assert "compile the model again" in str(caught.value)


def test_an_input_larger_than_the_largest(sized):
    change = more(["*", [POSITIVE], 100], ["+", [7], [23]], then=at("inputs", 1, "shape", 1)([24]))
    with SizedModel(changed(sized, change)) as model:
        check(model, 8, 48)
        with pytest.raises(RefusedError, match=r"cannot run .* for h=8, w=6: this takes .* bytes"):
            run(model, 8, 6)


def check(model, height, width):
    for one, other in zip(
        run(model, height, width), reference(*inputs_of(height, width)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


FACTORS = {"count": TABLE["launch"] + 24, "words": TABLE["launch"] + 32}


@pytest.mark.parametrize("address", OUTSIDE)
def test_factors_are_in_the_code(sized, tmp_path, address):
    def change(data):
        table = Table(data)
        table.point(table.entry + FACTORS["words"], address)

    with pytest.raises(RefusedError, match="its table of kernels has factors outside the code"):
        load(forge(sized, tmp_path / "a.so", change))


@pytest.mark.parametrize("words", [0, 1, 23, 25, 1 << 20, 1 << 62, (1 << 64) - 1])
def test_factors_are_as_many_as_the_table_says(sized, tmp_path, words):
    def change(data):
        table = Table(data)
        table.write(table.entry + FACTORS["count"], words.to_bytes(8, "little"))

    with pytest.raises(RefusedError, match="its table of kernels has factors outside the code"):
        load(forge(sized, tmp_path / "a.so", change))


@pytest.mark.parametrize("word", [2, 33, 1 << 20, (1 << 32) - 1])
def test_no_tensor_has_more_factors_than_there_are(sized, tmp_path, word):
    def change(data):
        table = Table(data)
        words = table.address(table.entry + FACTORS["words"])
        table.write(words, word.to_bytes(4, "little"))

    with pytest.raises(RefusedError, match=r"factors outside the code|other extents than"):
        load(forge(sized, tmp_path / "a.so", change))


@pytest.mark.parametrize("word", [0, 3, 5, 1 << 20, (1 << 32) - 1])
def test_positions_of_factors_are_those_of_extents(sized, tmp_path, word):
    """The first kernel's first factor is the position of its last extent, 4."""

    def change(data):
        table = Table(data)
        words = table.address(table.entry + FACTORS["words"])
        table.write(words + 4, word.to_bytes(4, "little"))

    with pytest.raises(RefusedError, match="call 2, of 'pool', has other extents"):
        load(forge(sized, tmp_path / "a.so", change))


MUTANTS = 300
CHILD = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from sized_calls import RefusedError, SizedModel
from test_crafted_sizes import load
for path in map(Path, sys.stdin.read().split()):
    print(path, end=' ', flush=True)
    try:
        print(b''.join(load(path)).hex())
    except RefusedError as error:
        assert '\\n' not in str(error)
        print('refused')
"""


def test_a_header_that_lies_is_refused_or_is_another_program(sized, tmp_path):
    """Extents stay as they are: only those are checked that say how large tensors are."""
    right = sized_header(sized)
    texts = [right]
    for seed in range(MUTANTS):
        header = mutant({**right, "extents": None}, seed)
        texts.append({**header, "extents": right["extents"]})
    paths = []
    for number, header in enumerate(texts):
        paths.append(forge_header(sized, tmp_path / f"{number}.so", json.dumps(header).encode()))
    command = [sys.executable, "-c", CHILD, "", *sys.path]
    words = " ".join(map(str, paths))
    done = subprocess.run(command, input=words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout.rpartition("\n")[2] + done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    expected = said[str(paths[0])]
    assert {"refused", expected} <= set(said.values())
    parts = ("calls", "returns", "inputs", "weights", "activations", "values", "sizes", "extents")
    for path, header in zip(paths, texts, strict=True):
        if said[str(path)] not in ("refused", expected):
            assert any(header.get(part) != right[part] for part in parts), path
