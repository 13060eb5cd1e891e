"""NEON's convolution kernels at awkward sizes, in schemes drawn at random, against the reference.

A tuning database in which every other scheme failed makes the plan choose the drawn one.
"""

import random

import needs
import numpy as np
import pytest
from emulator import run_modules
from onnx import ModelProto
from text_models import floats, text_model

import neocpu
from neocpu.compilation.read_model import convolutions
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.tuning_db.record import Environment, Record, Result, TargetKey
from neocpu.tuning_db.store import Store
from neocpu.verification.reference.runner import run_reference

TARGET = parse_target("rpi4")
THREADS = 2
DRAWS = 2 if needs.EVERYTHING else 1
# By algorithm: (input shape, output channels, kernel, attributes).
CONVOLUTIONS = {
    "direct": [
        ((1, 17, 7, 9), 13, (3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 3, 11, 5), 5, (5, 5), {"pads": [0, 1, 2, 1]}),
        ((1, 31, 3, 3), 7, (3, 3), {}),
        ((3, 13, 5, 8), 19, (1, 7), {"pads": [0, 3, 0, 3], "strides": [2, 3]}),
        ((1, 8, 13, 13), 24, (3, 3), {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
        ((1, 3, 33, 31), 16, (7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
        ((1, 5, 9, 9), 10, (3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),
    ],
    "winograd": [
        ((1, 17, 7, 9), 13, (3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 5, 6, 11), 7, (3, 3), {"pads": [0, 2, 1, 0]}),
        ((1, 19, 3, 3), 23, (3, 3), {}),
        ((1, 12, 14, 14), 16, (5, 5), {"pads": [2, 2, 2, 2]}),
        ((1, 16, 9, 17), 16, (1, 7), {"pads": [0, 3, 0, 3]}),
        ((1, 11, 13, 13), 8, (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ],
    "depthwise": [
        ((1, 17, 7, 9), 17, (3, 3), {"group": 17, "pads": [1, 1, 1, 1]}),
        ((2, 13, 11, 6), 13, (3, 3), {"group": 13, "pads": [0, 1, 1, 0], "strides": [2, 2]}),
        ((1, 5, 9, 9), 5, (5, 5), {"group": 5, "pads": [2, 2, 2, 2]}),
        ((1, 8, 3, 3), 8, (3, 3), {"group": 8}),
        ((1, 19, 12, 10), 19, (3, 3), {"group": 19, "pads": [2, 2, 2, 2], "dilations": [2, 2]}),
    ],
    "grouped": [
        ((1, 20, 7, 9), 20, (3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),
        ((2, 14, 6, 5), 14, (3, 3), {"group": 7, "pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ((1, 16, 5, 5), 16, (1, 1), {"group": 2}),
    ],
    "pointwise": [
        ((1, 17, 7, 9), 13, (1, 1), {}),
        ((3, 67, 1, 1), 5, (1, 1), {}),
        ((2, 29, 9, 7), 31, (1, 1), {"strides": [2, 2]}),
        ((1, 64, 14, 14), 48, (1, 1), {}),
    ],
    "nchw": [
        ((1, 3, 9, 11), 5, (3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 7, 5, 5), 3, (7, 1), {"pads": [3, 0, 3, 0]}),
        ((1, 15, 7, 9), 9, (3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    ],
}
CASES = [(name, draw) for name in CONVOLUTIONS for draw in range(DRAWS)]


def model(algorithm: str) -> ModelProto:
    """Return convolutions with separate inputs, each with a bias and a ReLU."""
    rng = np.random.default_rng(0)
    lines, constants, inputs, outputs = [], {}, [], []
    for n, (shape, channels, kernel, attributes) in enumerate(CONVOLUTIONS[algorithm]):
        fan_in = (shape[1] // attributes.get("group", 1), *kernel)
        scale = 1 / np.sqrt(np.prod(fan_in))
        constants[f"w{n}"] = floats(channels, *fan_in, seed=rng, scale=scale)
        constants[f"b{n}"] = floats(channels, seed=rng)
        more = ", ".join(f"{name} = {value}" for name, value in attributes.items())
        lines.append(f"c{n} = Conv {f'<{more}>' if more else ''} (x{n}, w{n}, b{n})")
        lines.append(f"y{n} = Relu (c{n})")
        inputs.append(f"float{[*shape]} x{n}")
        outputs.append(f"float[n{n}, k{n}, h{n}, v{n}] y{n}")
    head = f"{algorithm} ({', '.join(inputs)}) => ({', '.join(outputs)})"
    return text_model(f"{head} {{ {' '.join(lines)} }}", constants)


def draw_schemes(made: ModelProto, algorithm: str, draw: int, path) -> None:
    """Write a database in which one scheme of every convolution works, drawn from its space."""
    choice = random.Random(f"{algorithm} {draw}")
    template = f"conv2d_{algorithm}"
    store = Store.open([], path, registry.template_version)
    for workload in dict.fromkeys(convolutions(made)):
        space = [s for s in registry.schemes(workload, TARGET) if s.template == template]
        assert space, f"{template} computes no {workload}"
        drawn = choice.choice(space)
        store.append(
            [
                Record(
                    workload=workload,
                    target=TargetKey.of(TARGET, THREADS),
                    scheme=scheme,
                    result=Result((1e-6,)) if scheme == drawn else Result((), "not drawn"),
                    env=Environment.current(registry.template_version(template)),
                    time="2026-01-01T00:00:00+00:00",
                )
                for scheme in space
            ]
        )


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Every case's outputs on ARM."""
    folder = tmp_path_factory.mktemp("kernels")
    inputs = {}
    for algorithm, draw in CASES:
        made, database = model(algorithm), folder / f"{algorithm}{draw}.jsonl"
        draw_schemes(made, algorithm, draw, database)
        with neocpu.compile(
            made,
            target=str(TARGET),
            threads=THREADS,
            algorithms=[algorithm],
            databases=[database],
            only_databases=True,
        ) as compiled:
            used = {op.scheme.template for op in compiled.plan.ops if op.scheme}
            assert f"conv2d_{algorithm}" in used
            sources = {op.cost_source for op in compiled.plan.ops if op.kind == "conv2d"}
            assert sources <= {"measured", "measured and folded"}
            compiled.export(folder / f"{algorithm}{draw}.so")
        inputs[f"{algorithm}{draw}"] = arrays(algorithm)
    return run_modules(folder, inputs)


def arrays(algorithm: str) -> dict[str, np.ndarray]:
    """Return the inputs of `model`."""
    rng = np.random.default_rng(1)
    shapes = (shape for shape, *_ in CONVOLUTIONS[algorithm])
    return {f"x{number}": floats(*shape, seed=rng) for number, shape in enumerate(shapes)}


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "draw"), CASES)
def test_neon_kernels(outputs, algorithm, draw):
    expected = run_reference(model(algorithm), arrays(algorithm), double=True)
    actual = outputs[f"{algorithm}{draw}"]
    assert list(actual) == list(expected)
    for name, want in expected.items():
        error = np.linalg.norm(actual[name] - want) / np.linalg.norm(want)
        assert error <= (1e-4 if algorithm == "winograd" else 5e-6), name


@pytest.mark.slow
def test_clips_keep_every_nan(tmp_path):
    """NaN may have either sign; NEON clips them as integers, and one is less than zero."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, 16, 40, 40)).astype(np.float32)
    bits = x.view(np.uint32)
    bits[0, 3, 20, 20], bits[0, 5, 30, 31], bits[0, 15, 0, 0] = 0x7FC00000, 0xFFC00001, 0xFFC00000
    made = text_model(
        """clip (float[1, 16, 40, 40] x) => (float[1, 16, 40, 40] y) {
            c = Conv <group = 16, pads = [1, 1, 1, 1]> (x, w, b)
            y = Clip (c, low, high)
        }""",
        {
            **{"w": floats(16, 1, 3, 3, seed=rng, scale=3), "b": floats(16, seed=rng)},
            **{"low": np.float32(0), "high": np.float32(6)},
        },
    )
    with neocpu.compile(
        made, target=str(TARGET), threads=THREADS, algorithms=["depthwise"]
    ) as compiled:
        compiled.export(tmp_path / "clip.so")
    (actual,) = run_modules(tmp_path, {"clip": {"x": x}})["clip"].values()
    expected = run_reference(made, {"x": x}, double=True)["y"]
    assert np.isnan(expected).sum() == 9 + 9 + 4
    np.testing.assert_allclose(actual, expected, atol=1e-4)
