"""Sets whose plans read weights in several packings; the file stores one of them."""

import json
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from float_models import float_model
from onnx import helper
from onnx.reference import ReferenceEvaluator

import neocpu
from neocpu.building.weight_packing import PackedArray, find_packings, lay_out
from neocpu.cli.main import main
from neocpu.foundation.errors import ArtifactError
from neocpu.ir.array_digests import ArrayDigests
from neocpu.planning.weight_origin import Unpacked
from neocpu.runtime.artifact import ArtifactFile, read_header
from neocpu.runtime.bundle.write_bundle import write_bundle
from neocpu.runtime.header import PACKING_FORMAT, SET_FORMAT
from neocpu.schedules.vocabulary.layout import (
    KernelLayout,
    StrassenLayout,
    WeightLayout,
    WinogradLayout,
)
from tests.neocpu.runtime.bundle.conftest import SANITIZERS, build
from tests.neocpu.runtime.forgery import forge_header
from tests.neocpu.runtime.header_mutants import mutant

SHAPES = [{"x": (1, 48, 6, 6)}, {"x": (3, 48, 20, 21)}]
MUTANTS = 30


@dataclass(frozen=True)
class Sets:
    """A model as a set that packs at load, as one that does not, and as separate parts."""

    model: onnx.ModelProto
    path: Path
    whole: Path


def network() -> onnx.ModelProto:
    """Convolutions whose weights are large enough for a packing kernel."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.normal(size=(80, 48, 3, 3)).astype("float32") / 20,
        "w2": rng.normal(size=(64, 80, 3, 3)).astype("float32") / 20,
    }
    weights["w2"][:3, :5] *= np.float32(1e-38)  # some are too small to be normal
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]
    return float_model(
        "packed", nodes, {"x": ("n", 48, "h", "w")}, {"y": ("n", 64, "h", "w")}, weights, 17
    )


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    folder = tmp_path_factory.mktemp("packed")
    model = network()
    for name, packs in (("set.so", True), ("whole.so", False)):
        settings = {"threads": 2, "only_databases": True, "pack_at_load": packs, "verify": packs}
        with neocpu.compile(model, shapes=SHAPES, **settings) as compiled:
            compiled.export(folder / name)
    return Sets(model, folder / "set.so", folder / "whole.so")


@pytest.mark.parametrize("streams", [1, 2])
def test_each_shape_is_computed(sets: Sets, streams: int):
    with neocpu.load(sets.path, threads=1, streams=streams, hugepages=True) as module:
        assert module.packing_seconds > 0
        for number, shapes in enumerate([*SHAPES, *SHAPES]):
            x = np.random.default_rng(number).normal(size=shapes["x"]).astype("float32")
            expected = ReferenceEvaluator(sets.model).run(None, {"x": x})[0]
            for y in [module.submit(x) for _ in range(streams)]:
                np.testing.assert_allclose(y.result(), expected, rtol=1e-4, atol=1e-4)


def test_a_weight_is_stored_once(sets: Sets):
    mine, whole = (ArtifactFile(path).variants[0] for path in (sets.path, sets.whole))
    given = (80 * 48 + 64 * 80) * 9 * 4
    assert (mine.header.format, whole.header.format) == (PACKING_FORMAT, SET_FORMAT)
    assert given <= mine.weight_bytes < 1.1 * given + 50_000
    prologue = mine.header.prologue
    assert prologue.offset == mine.weight_bytes
    assert prologue.seconds > 0
    assert prologue.made_bytes >= given
    header = mine.header
    assert type(header).from_json(json.loads(header.encode())) == header
    assert "packed at load" in str(header)
    with neocpu.load(sets.whole, 1) as module:
        assert module.packing_seconds == 0.0


def test_commands_report_packing_at_load(sets: Sets, capsys: pytest.CaptureFixture[str]):
    for command in ("inspect", "explain"):
        assert main([command, str(sets.path)]) == 0
        assert "packed at load" in capsys.readouterr().out
    assert main(["inspect", str(sets.path), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["variants"]
    prologue = read_header(sets.path).prologue
    assert told["packed_at_load"] == prologue.summary
    assert main(["inspect", str(sets.whole)]) == 0
    assert "packed at load" not in capsys.readouterr().out


def test_what_is_loaded_from_memory_and_trusted(sets: Sets):
    x = np.ones(SHAPES[1]["x"], "float32")
    with (
        neocpu.load(sets.path, 1) as one,
        neocpu.load(sets.path.read_bytes(), 2, verify=False) as other,
    ):
        np.testing.assert_array_equal(one(x), other(x))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data.pop("prologue"), "prologue"),
        (lambda data: data["prologue"].update(offset=0), "prologue"),
        (lambda data: data["prologue"].pop("calls"), "calls"),
        (lambda data: data["prologue"].update(arena_bytes=128), "activations"),
        (lambda data: data["prologue"]["weights"][0].__setitem__(0, 1 << 30), "weights"),
        (lambda data: data["prologue"]["activations"][0].__setitem__(0, 64), "activations"),
        (lambda data: data.update(format=SET_FORMAT), "weights"),
    ],
)
def test_prologues_that_lie_are_refused(sets: Sets, tmp_path, change, problem):
    data = read_header(sets.path).to_json()
    change(data)
    path = forge_header(sets.path, tmp_path / "forged.so", data)
    with pytest.raises(ArtifactError, match=rf"malformed header \({problem}\)"):
        neocpu.load(path)


def test_a_prologue_writes_only_its_own_weights(sets: Sets, tmp_path):
    data = read_header(sets.path).to_json()
    call = data["prologue"]["calls"][0]
    call[-1] = call[1]
    path = forge_header(sets.path, tmp_path / "forged.so", data)
    with pytest.raises(ArtifactError, match="header and code disagree: call 0"):
        neocpu.load(path)


def test_prologues_in_c(sets: Sets, tmp_path):
    write_bundle(sets.path, tmp_path / "bundle")
    native = build(tmp_path / "bundle", "-O1", *SANITIZERS)
    done = native.run("neocpu_run", sets.path, "--repeat", 2)
    assert (done.returncode, done.stderr) == (0, "")
    right = read_header(sets.path).to_json()
    for program in right["plans"]:
        program["plan"] = {}
    refused = 0
    for seed in range(MUTANTS):
        changed = {**right, "prologue": mutant(right["prologue"], seed)}
        path = forge_header(sets.path, tmp_path / "forged.so", changed)
        done = native.run("neocpu_run", path, "--threads", 1)
        assert done.returncode in (0, 5, 8), (seed, done.stderr)
        refused += done.returncode == 8
    assert refused > MUTANTS // 2


def arrays_of(weights: np.ndarray, *layouts: WeightLayout) -> list[PackedArray]:
    """Return a weight in several packings; transformed ones have their real size."""
    found = []
    for layout in layouts:
        if isinstance(layout, KernelLayout):
            data = layout.pack(weights)
        elif isinstance(layout, StrassenLayout):
            rows = 7 * layout.half + -(-layout.half // layout.oc_bn) + 1
            data = np.zeros((weights.shape[0] // (2 * layout.oc_bn), rows, layout.oc_bn))
        else:
            data = np.zeros((36, weights.shape[0] // layout.oc_bn, weights.shape[1], layout.oc_bn))
        data = data.astype("float32")
        found.append(
            PackedArray(data, "float32", data.shape, Unpacked(weights, layout).origin(DIGESTS))
        )
    return found


WEIGHTS = np.random.default_rng(0).normal(size=(64, 64, 3, 3)).astype("float32")
DIGESTS = ArrayDigests()
MOVED, OTHER = KernelLayout(16, 16), KernelLayout(16, 32)
FOUR, WIDE = WinogradLayout(4, (1, 1), 16, 16), WinogradLayout(4, (1, 1), 16, 32)


@pytest.mark.parametrize(
    ("layouts", "made", "stored"),
    [
        ((MOVED,), [], 1),
        ((MOVED, OTHER), [1], 1),
        ((FOUR, MOVED), [0], 2),  # with the matrix
        ((FOUR,), [0], 2),
        ((FOUR, WIDE), [0, 1], 2),
    ],
)
def test_weights_in_several_packings_are_stored_once(layouts, made, stored):
    arrays = arrays_of(WEIGHTS, *layouts)
    packings = find_packings(arrays)
    assert [each.made for each in packings] == made
    laid = lay_out(arrays, packings, ["pack"] * len(packings))
    assert len(laid.stored) == stored
    assert sum(array.nbytes for array in laid.stored) < WEIGHTS.nbytes + 4096
    assert (laid.prologue is None) == (not made)
    for number in made:
        assert laid.places[number].offset >= laid.prologue.offset


def test_the_factors_of_sums_of_weights_are_stored():
    matrix = np.random.default_rng(0).normal(size=(128, 256, 1, 1)).astype("float32")
    arrays = arrays_of(matrix, StrassenLayout(128, 16), MOVED, StrassenLayout(128, 32))
    packings = find_packings(arrays)
    assert [each.made for each in packings] == [0, 2]
    laid = lay_out(arrays, packings, ["pack", "pack"])
    assert [array.nbytes for array in laid.stored] == [matrix.nbytes, 4 * (128 + 64)]


def test_weights_are_identified_by_values_type_and_layout():
    halves = WEIGHTS.astype(ml_dtypes.bfloat16)
    others = (WEIGHTS, halves, WEIGHTS[:32], WEIGHTS.transpose(1, 0, 2, 3), WEIGHTS.T)
    origins = [Unpacked(each, MOVED).origin(DIGESTS) for each in others]
    assert len({origin.digest for origin in origins}) == len(others)
    assert Unpacked(WEIGHTS.copy(), FOUR).origin(DIGESTS).digest == origins[0].digest
    assert origins[0].transformed is None


def test_small_and_unknown_weights_are_stored():
    small = arrays_of(WEIGHTS[:16, :16], MOVED, OTHER, FOUR)
    unknown = [PackedArray(WEIGHTS, "float32", WEIGHTS.shape) for _ in range(2)]
    assert find_packings([*small[:2], *unknown]) == ()
