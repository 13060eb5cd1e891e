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
        activations=(Placement(64, "int8", (5, 2)), Placement(0, "bool", ())),
        arena_bytes=74,
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
        ArtifactHeader.from_json(parse(text)).check_weights(size)
    except FieldError as error:
        return str(error)
    return ""
