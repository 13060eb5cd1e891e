"""Headers and modules as ``print`` shows them: one line or one screen, with any content."""

from dataclasses import replace

import pytest
from small_plans import small_plan, verified

import neocpu
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.foundation.units import size
from neocpu.runtime.header_parts import Placement

SCREEN_LINES, SCREEN_COLUMNS = 24, 120


def hostile(header):
    """Return a header with many long fields, and names that act on terminals."""
    specs = tuple(TensorSpec(f"t{i}\x1b[2J\n{'x' * 300}", "float32", (1,) * 30) for i in range(900))
    return replace(
        header,
        name="n\u202e" + "y" * 500,
        target="t" * 500,
        neocpu_version="\n" * 500,
        isa_features=("avx512f\x1b",) * 300,
        inputs=specs,
        outputs=specs,
        weights=(Placement(0, "float32", (1000,)),) * 900,
        stored_plan={"ops": [{"name": "op" * 50}] * 5000, "accuracy": [], "verification": 3},
    )


@pytest.mark.parametrize("change", [lambda header: header, hostile])
def test_a_header_is_a_screen(linear, change):
    header = change(linear.header)
    lines = str(header).split("\n")
    assert len(lines) <= SCREEN_LINES
    assert all(len(line) <= SCREEN_COLUMNS and line.isprintable() for line in lines)
    for text in (repr(header), f"{[header]}"):
        assert text.isprintable()
        assert len(text) < 3000


def test_what_it_says(linear):
    plan = small_plan(verification=verified(1.234e-7))
    text = str(replace(linear.header, isa_features=("avx2",)).with_plan(plan))
    for words in (
        "linear\n",
        "input         x: float32[4, 64]",
        "output        y: float32[4, 33]",
        "target        llvm",
        "instructions  avx2",
        "threads       planned for 2",
        f"weights       {size(linear.header.weights[-1].end)}, 2 of them",
        "accuracy      default, at most 0.0001 norm-wise, 1.2e-07 found",
        "versions      neocpu ",
    ):
        assert words in text
    above = small_plan(verification=verified(0.0065, float32_error=0.0021))
    assert (
        "at most 0.0001 norm-wise, 0.0065 found: above the 0.0001 promised, within 4 times the "
    ) in str(linear.header.with_plan(above))
    assert "not checked" in str(linear.header.with_plan(small_plan()))


def test_modules(linear):
    with neocpu.load(linear.path, 1) as module, CompiledModule(linear.header, None) as compiled:
        shown = "linear: x: float32[4, 64] -> y: float32[4, 33]; llvm"
        assert repr(module) == f"<neocpu.Module {shown}, on 1 thread>"
        assert repr(compiled) == f"<neocpu.CompiledModule {shown}>"
        assert repr(module.metadata) == f"<neocpu.ArtifactHeader {shown}>"
