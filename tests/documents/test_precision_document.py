"""The commands and snippets of docs/precision.md run as they are printed."""

from __future__ import annotations

import numpy as np
import pytest
from document_blocks import blocks, commands, options
from needs import engine, linker, skip

DOCUMENT = "docs/precision.md"

#: A small network in the place of the reader's, and of one that takes a minute.
FILES = {"MODEL": "resnet50.onnx", "profile resnet50 ": "profile resnet50.onnx "}
ENGINES = ("onnxruntime", "openvino")
#: Options and values that a table names and does not show in use.
NAMED = ("--method", "--correct-bias", "--exclude", "--wide", "layer")
#: What is not run here, and what runs it.
ELSEWHERE = {"pip install": "installing is tested by tests/test_packaging.py and `make fresh`"}


def _short(text):
    """Return commands that measure no longer than they must."""
    return text.replace("bench race", "bench race --rounds 2")


@pytest.mark.parametrize("block", [b for b in blocks(DOCUMENT) if not b.language], ids=str)
def test_the_commands_of_a_block_succeed(block, shell):
    if "rpi4" in block.text:
        skip(linker("aarch64"))
    lines = block.text.splitlines()
    text = "\n".join(line for line in lines if not line.startswith(tuple(ELSEWHERE)))
    shell(_short(text))


def test_the_example_quantises_and_compiles(place, capsys):
    (block,) = (block for block in blocks(DOCUMENT) if block.language == "python")
    rng = np.random.default_rng(0)
    names = {"samples": [rng.random((1, 3, 224, 224), np.float32) for _ in range(4)]}
    exec(compile(block.text, str(block), "exec"), names)
    assert capsys.readouterr().out
    for name in ("resnet50.int8.onnx", "resnet50.so", "mixed.so"):
        assert (place / name).is_file()


@pytest.mark.parametrize("command", commands(DOCUMENT), ids=str)
def test_a_command_in_a_sentence_succeeds(command, shell):
    text = _short(command.text)
    for name in ENGINES:
        if name in text:
            skip(engine(name))
    for word, file in FILES.items():
        text = text.replace(word, file)
    if "any.so" in text:
        text = f"neocpu compile resnet50.int8.onnx --fat avx2,avx512 -o any.so\n{text}"
    shell(text)


@pytest.mark.parametrize("row", options(DOCUMENT), ids=str)
def test_the_options_of_a_table_quantise_a_model(row, shell):
    if row.text in NAMED:
        assert row.text in shell("neocpu quantize --help").stdout
    else:
        shell(f"neocpu quantize resnet50.onnx --calibrate photos/ {row.text} -o new.onnx")
