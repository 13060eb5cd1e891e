"""Texts of headers from anybody: values that are read refer to existing things only."""

import json
import struct
import subprocess
from dataclasses import replace

from forgery import check_places
from header_mutants import mutant_text
from sized_artifact import sized_header

from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.header_parts import Placement

CASES = 6000


def test_what_is_read_is_there(sanitized, linear):
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
        stored_plan={"ops": [{"µs": [1.5, -2, None]}], "deep": [[[{"a": {}}]]]},
    )
    size = header.weights[-1].end + -header.weights[-1].end % 128
    right = header.to_json()
    texts = [header.encode(), *(mutant_text(right, seed) for seed in range(CASES))]
    command = [sanitized.folder / sanitized.compile("headers.c"), str(size)]
    stream = b"".join(struct.pack("=I", len(text)) + text for text in texts)
    done = subprocess.run(command, input=stream, capture_output=True, check=True)
    for text, read in zip(texts, done.stdout.decode(), strict=True):
        if read == "y":
            check_places(ArtifactHeader.from_json(json.loads(text)), size)
    assert done.stdout.startswith(b"y")
    assert CASES // 10 < done.stdout.count(b"y") < CASES // 2


def test_what_is_read_for_sizes_is_there(sanitized, sized):
    """Changed headers of a model whose calls choose sizes, which are then chosen."""
    right = sized_header(sized)
    texts = [json.dumps(right).encode(), *(mutant_text(right, seed) for seed in range(CASES))]
    command = [sanitized.folder / sanitized.compile("headers.c"), "128"]
    stream = b"".join(struct.pack("=I", len(text)) + text for text in texts)
    done = subprocess.run(command, input=stream, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    for text, read in zip(texts, done.stdout.decode(), strict=True):
        if read == "y":
            check_places(ArtifactHeader.from_json(json.loads(text)), 128)
    assert done.stdout.startswith(b"y")
    assert CASES // 20 < done.stdout.count(b"y") < CASES // 2
