"""Texts of headers that anybody may have written: Python and C read the same of them."""

import struct
import subprocess
from dataclasses import replace

from header_mutants import mutant_text

from neocpu.runtime.artifact_file.header import ArtifactHeader, Placement
from neocpu.runtime.artifact_file.strict_json import FieldError, parse
from neocpu.tensor_spec import TensorSpec

CASES = 6000


def test_both_read_the_same(built, linear):
    header = replace(
        linear.header,
        outputs=tuple(TensorSpec(name, "float32", (4, 2), name != "c") for name in "abc"),
        row_counts=(3, 4, None),
        activations=(
            *(Placement(64, "int8", (5, 2)), Placement(0, "int64", (4,))),
            *(Placement(64, "int64", (1,)), Placement(0, "bool", ())),
        ),
        arena_bytes=74,
        calls=(("one", (0, 1, 3)), ("two", ())),
        returns=(4, 4, 4, 5, 5),
        plan={"ops": [{"µs": [1.5, -2, None]}], "deep": [[[{"a": {}}]]]},
    )
    size = header.weights[-1].end + -header.weights[-1].end % 128
    right = header.to_json()
    texts = [header.encode(), *(mutant_text(right, seed) for seed in range(CASES))]
    command = [built.folder / built.compile("headers.c"), str(size)]
    stream = b"".join(struct.pack("=I", len(text)) + text for text in texts)
    done = subprocess.run(command, input=stream, capture_output=True, check=True)
    for text, read in zip(texts, done.stdout.decode(), strict=True):
        reason = refusal(text, size)
        # C compares the machine with the code's.
        if not reason.startswith("machine: not one of"):
            assert (read == "n") == bool(reason), (text, reason)
    assert done.stdout.startswith(b"y")
    assert CASES // 10 < done.stdout.count(b"y") < CASES // 2


def refusal(text, size):
    """Return why Python refuses a header, empty if it does not."""
    try:
        header = ArtifactHeader.from_json(parse(text))
        header.check_weights(size)
        check_program(header)
    except FieldError as error:
        return str(error)
    return ""


def check_program(header):
    """Refuse calls and returns of tensors that are not there."""
    sizes = [Placement(0, spec.dtype, spec.shape).end for spec in header.inputs]
    sizes += [one.end - one.offset for one in (*header.weights, *header.activations)]
    for _, tensors in header.calls:
        if any(tensor >= len(sizes) for tensor in tensors):
            raise FieldError("calls")
    counts = sorted({count for count in header.row_counts if count is not None})
    results = (*header.outputs, *(TensorSpec("rows", "int64", (1,)) for _ in counts))
    if len(header.returns) != len(results):
        raise FieldError("returns")
    for number, spec in zip(header.returns, results, strict=True):
        if number >= len(sizes) or sizes[number] != Placement(0, spec.dtype, spec.shape).end:
            raise FieldError("returns")
