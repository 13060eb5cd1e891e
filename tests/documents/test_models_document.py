"""The commands of docs/models.md run, and print what the document says."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import stand_ins
from document_blocks import Block, blocks, options

import neocpu
from neocpu.ir.custom_operators import registry

DOCUMENT = "docs/models.md"

#: A model that takes the options of a row of the document's tables.
MODELS = {
    "--shape image:1,3,640,640": stand_ins.pointwise(["n", 3, "h", "w"]),
    "--shape batch=8": stand_ins.pointwise(["batch", 3, 32, 32]),
    "--shape sr=16000": stand_ins.rated(),
    "--batch 8": stand_ins.pointwise([1, 3, 32, 32]),
    "--shape 'image:{1,4,16},3,{224,320},{224,320}'": stand_ins.pointwise(["n", 3, "h", "w"], 2),
    "--shape image:1,3,224,224 --shape image:4,3,320,320": stand_ins.pointwise(
        ["n", 3, "h", "w"], 2
    ),
    "--shape image:1,3,224..320/32,256": stand_ins.pointwise(["n", 3, "h", "w"], 2),
    "--shape image:1,3,32..2048/32,32..2048/32": stand_ins.pointwise(["n", 3, "h", "w"], 2),
    "--shape image:1,3,32..512/32,64 --typical 1,3,256,64": stand_ins.pointwise(
        ["n", 3, "h", "w"], 2
    ),
    "--shape h=32..2048/32 --typical h=736": stand_ins.pointwise([1, 3, "h", 64], 2),
    "--shape batch=1..16": stand_ins.pointwise(["batch", 3, 32, 32], 2),
    "--shape 'batch={1,4}' --shape 'h={224,320}'": stand_ins.pointwise(["batch", 3, "h", 224], 2),
}

#: The model and options of a compilation that fails with a block's message.
REFUSED = {
    "Concat '/up1/Concat'": (stand_ins.unet(), "--shape x:1,3,225,225"),
    "Loop '/decoder/Loop'": (stand_ins.counted(), ""),
}


def _of(language: str) -> list[Block]:
    return [block for block in blocks(DOCUMENT) if block.language == language]


@pytest.mark.parametrize("row", options(DOCUMENT), ids=str)
def test_the_options_of_a_table_compile_a_model(row, place, shell):
    onnx.save(MODELS[row.text], place / "net.onnx")
    shell(f"neocpu compile net.onnx {row.text} -o net.so && neocpu run net.so")


@pytest.mark.parametrize("block", _of(""), ids=str)
def test_a_refusal_reads_as_it_is_shown(block, place, shell):
    ((model, given),) = (REFUSED[start] for start in REFUSED if block.text.startswith(start))
    onnx.save(model, place / "net.onnx")
    done = shell(f"! neocpu compile net.onnx {given} -o net.so")
    assert " ".join(block.text.split()) in " ".join(done.stderr.split())


def test_the_interface_to_backends(place, monkeypatch):
    (block,) = (b for b in _of("python") if "prepare" in b.text)
    onnx.save(stand_ins.pointwise([1, 3, 8, 8]), "net.onnx")
    names = {"x": np.ones((1, 3, 8, 8), np.float32)}
    exec(compile(block.text, str(block), "exec"), names)
    assert names["y"].shape == (1, 8, 8, 8)


def test_an_operator_of_ones_own(monkeypatch):
    (block,) = (b for b in _of("python") if "CustomOperator" in b.text)
    names: dict[str, object] = {"__name__": "my_package"}
    monkeypatch.setattr(registry, "_REGISTERED", {})
    exec(compile(block.text, str(block), "exec"), names)
    neocpu.register_operator(names["OPERATORS"][0])
    x = np.linspace(-2, 2, 192, dtype=np.float32).reshape(1, 3, 8, 8)
    with neocpu.compile(stand_ins.leaky()) as compiled, compiled.module() as module:
        np.testing.assert_allclose(module(x), np.where(x > 0, x, x * np.float32(0.1)), rtol=1e-6)
