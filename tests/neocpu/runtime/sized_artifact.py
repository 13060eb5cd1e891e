"""A small artifact whose calls choose a height and a width, with kernels written in C."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from neocpu.building.link import link_artifact, place
from neocpu.building.program import CompiledKernel, Kernel
from neocpu.foundation.size_formulas import Entry, Size, Term
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.header import SIZED_FORMAT
from neocpu.runtime.header_parts import Placement
from neocpu.runtime.sized_form import SizedForm
from tests.neocpu.conftest import _header
from wheels.backend import CORE

HEIGHT: Final = Size(name="h", least=2, most=64, step=2, typical=8)
WIDTH: Final = Size(name="w", least=2, most=48, step=1, typical=5)
FACTORS: Final = np.array([0.5, -2], np.float32)
_F32: Final = "float32"
X, M, WEIGHT, SCALED, POOLED, SUMS, DOUBLED, E_SCALE, E_POOL, E_TOTAL = range(10)
"""Numbers of tensors."""

KERNELS: Final = (
    Kernel("pool", (0, 8, 4, 8), ("uint8", _F32, _F32, _F32), 1, ((4,), (0, 1), (2,), (2, 3))),
    Kernel("scale", (0, 8, 8, 8), ("uint8", _F32, _F32, _F32), 1, ((1,), (0, 1), (), (0, 1))),
    Kernel("total", (0, 8, 8, 8), ("uint8", _F32, _F32, _F32), 1, ((1,), (0, 1), (), ())),
    Kernel("twice", (8, 8), (_F32, _F32), 1),
)
CALLS: Final = (
    ("scale", (E_SCALE, X, WEIGHT, SCALED)),
    ("twice", (WEIGHT, DOUBLED)),
    ("pool", (E_POOL, SCALED, M, POOLED)),
    ("total", (E_TOTAL, POOLED, DOUBLED, SUMS)),
)


def value(number: int) -> Term:
    return Term(number, is_entry=True)


_ENTRIES: Final = (
    Entry("*", value(0), value(1)),
    Entry("*", value(2), Term(8)),  # 3: the bytes of x
    Entry("+", value(3), Term(63)),
    Entry("//", value(4), Term(64)),
    Entry("*", value(5), Term(64)),  # 6: where the means are
    Entry("//", value(0), Term(2)),  # 7, 8: their height and width
    Entry("//", value(1), Term(2)),
    Entry("*", value(7), value(8)),
    Entry("*", value(9), Term(8)),
    Entry("+", value(6), value(10)),
    Entry("+", value(11), Term(63)),
    Entry("//", value(12), Term(64)),
    Entry("*", value(13), Term(64)),  # 14: where the sums are
    Entry("+", value(14), Term(64)),
    Entry("+", value(15), Term(8)),  # 16: the bytes of the arena
    Entry("-", value(0), value(1)),
    Entry("max", value(17), Term(-3)),
)
_POOLED: Final = (Term(1), Term(2), value(7), value(8))
_SUMS: Final = (Term(1), Term(2))
_IMAGE: Final = (Term(1), Term(2), value(0), value(1))
FORM: Final = SizedForm(
    sizes=(HEIGHT, WIDTH),
    entries=_ENTRIES,
    inputs=(_IMAGE, (Term(1), value(7))),
    outputs=(_POOLED, _SUMS),
    activations=(_IMAGE, _POOLED, _SUMS, (Term(2),)),
    offsets=(Term(0), value(6), value(14), value(15)),
    arena_bytes=value(16),
    extents=(
        (value(0), value(1)),
        (value(0), value(1), value(7), value(8), value(18)),
        _POOLED[2:],
    ),
)


def write(folder: Path) -> Path:
    """Compile and write the artifact into a folder."""
    typical = FORM.typical
    inputs, outputs = FORM.shapes(typical, FORM.inputs), FORM.shapes(typical, FORM.outputs)
    shapes = FORM.shapes(typical, FORM.activations)
    *offsets, arena = FORM.integers(typical, (*FORM.offsets, FORM.arena_bytes))
    header = replace(
        _header(
            "sized",
            [TensorSpec(name, _F32, shape) for name, shape in zip("xm", inputs, strict=True)],
            [
                TensorSpec(name, _F32, shape)
                for name, shape in zip(("pooled", "sums"), outputs, strict=True)
            ],
        ),
        weights=place([FACTORS]),
        activations=tuple(
            Placement(offset, _F32, shape) for offset, shape in zip(offsets, shapes, strict=True)
        ),
        arena_bytes=arena,
        calls=CALLS,
        returns=(POOLED, SUMS),
        row_counts=(),
        sized=FORM,
        format=SIZED_FORMAT,
    )
    compiled = [
        CompiledKernel(kernel, (0,) if kernel.name == "scale" else (), _code(kernel.name, folder))
        for kernel in KERNELS
    ]
    path = folder / "sized.so"
    link_artifact(compiled, header.weights, [FACTORS], header, path)
    return path


def sized_header(path: Path) -> Any:
    """Return the JSON of the artifact's header."""
    data = path.read_bytes()
    start = data.index(b'{"format":')
    return json.loads(data[start : data.index(b"\n", start)])


def _code(name: str, folder: Path) -> bytes:
    output = folder / f"{name}.o"
    source = Path(__file__).with_name("sized_kernels.c")
    flags = ["-std=c11", "-O1", "-fPIC", f"-I{CORE}", f"-iquote{CORE / 'src'}", f"-DONE={name}"]
    subprocess.run(["cc", *flags, "-c", str(source), "-o", str(output)], check=True)
    return output.read_bytes()


def inputs_of(height: int, width: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    shapes = (1, 2, height, width), (1, height // 2)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def reference(x: Any, m: Any) -> list[Any]:
    """Return the outputs for inputs of any size."""
    _, _, height, width = x.shape
    scaled = x * FACTORS[:, None, None]
    rows, columns = height // 2, width // 2
    tiles = scaled[:, :, : 2 * rows, : 2 * columns].reshape(1, 2, rows, 2, columns, 2)
    pooled = tiles.mean(axis=(3, 5)) + m[:, None, :, None]
    return [pooled, pooled.sum(axis=(2, 3)) + 2 * FACTORS]
