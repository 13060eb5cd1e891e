"""The compiler's own argument checks, and outputs that become one value."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import onnx
import pytest
from float_models import float_model
from onnx import helper

import neocpu
from neocpu.compilation.read_model import convolutions
from neocpu.foundation.errors import NeoCPUError, UnsupportedError, UsageError
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.search.solver import plan as search
from neocpu.search.tuner import TuneReport


def tiny() -> onnx.ModelProto:
    """Three outputs: a value, the same again, and the input itself."""
    shape = [1, 3, 5, 5]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Identity", ["a"], ["b"]),
        helper.make_node("Identity", ["x"], ["c"]),
    ]
    return float_model("tiny", nodes, {"x": shape}, dict.fromkeys("abc", shape))


def test_outputs_that_are_one_value_keep_their_names():
    with neocpu.compile(tiny(), threads=1) as compiled, compiled.module() as module:
        inputs = random_inputs(module.inputs, seed=0)
        outputs = module.run(inputs)
    assert list(outputs) == ["a", "b", "c"]
    assert (outputs["a"] == outputs["b"]).all()
    assert (outputs["c"] == inputs["x"]).all()


def test_a_goal_is_remembered():
    with neocpu.compile(tiny(), goal="throughput", threads=2) as compiled:
        header = compiled.header
        assert (header.threads, header.streams) == (1, 2)
        assert [getattr(compiled.plan, key) for key in ("goal", "threads", "streams")] == [
            "throughput",
            1,
            2,
        ]
        assert "planned for 1, with 2 calls at once" in str(header)
        with neocpu.load(compiled.path, streams="auto") as module:
            assert module.threads == 1
    with neocpu.compile(tiny(), threads=2) as compiled:
        assert (compiled.header.streams, compiled.plan.goal) == (None, "latency")
        assert "streams" not in compiled.header.to_json()


@pytest.mark.parametrize(
    "arguments",
    [
        {"threads": 0},
        {"threads": 10**6},
        {"threads": "2"},
        {"tune_budget": -1.0},
        {"tune_budget": float("nan")},
        {"tune_budget": "60 parsecs"},
        {"tune_budget": True},
        {"tune_budget": [60]},
        {"batch": 0},
        {"batch": "8"},
        {"opt": "globl"},
        {"goal": "troughput"},
        {"algorithms": ["fft"]},
        {"accuracy": "exact"},
        {"solver": "greedy"},
        {"search_seconds": -1.0},
        {"search_seconds": float("nan")},
        {"shapes": {"x": [1, 3, 5, 5.5]}},
        {"shapes": {"x": 5}},
        {"max_weights": -1},
        {"max_weights": "120MB"},
    ],
    ids=str,
)
def test_bad_arguments_are_named(arguments):
    with pytest.raises(UsageError) as caught:
        neocpu.compile(tiny(), **arguments)
    assert "\n" not in str(caught.value)


def test_budgets_are_seconds_or_text(monkeypatch, tmp_path):
    budgets = []

    def measure(found, cpu, threads, store, strategy, budget, *_):
        budgets.append(budget.seconds)
        return TuneReport((), 0.0)

    for module in ("neocpu.compilation.compile_each", "neocpu.compilation.compiler"):
        monkeypatch.setattr(f"{module}.tune_networks", measure)
    database = tmp_path / "records.jsonl"
    database.touch()
    settings = {"databases": [database], "only_databases": True, "verify": False}
    for budget, tuned in (("0s", None), ("10m", TuneReport((), 0.0))):
        with neocpu.compile(tiny(), threads=1, tune_budget=budget, **settings) as compiled:
            assert compiled.tuned == tuned
    for budget in (None, 1.5, np.float32(4), "90", "0.5h"):
        neocpu.tune([tiny()], budget=budget, database=database, only_database=True, threads=1)
    assert budgets == [600, None, 1.5, 4, 90, 1800]
    with pytest.raises(UsageError, match="the tuning budget '2 days' is not a duration"):
        neocpu.tune([tiny()], budget="2 days", database=database, only_database=True)


class Exported:
    """An object like the one that PyTorch's exporter returns."""

    model_proto = None


class Network:
    """An object like PyTorch's modules."""

    def state_dict(self):
        return {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: neocpu.compile(3), "path of an .onnx file, .* got int$"),
        (lambda: neocpu.compile(None), "got NoneType$"),
        (lambda: neocpu.compile(Network()), "got Network: export it with torch.onnx.export"),
        (lambda: neocpu.compile(Exported()), "got Exported: pass its model_proto"),
        (lambda: neocpu.tune("net.onnx"), r"a sequence such as \[model\], got str"),
        (lambda: neocpu.tune(tiny()), r"a sequence such as \[model\], got ModelProto"),
        (lambda: neocpu.compile_fat(tiny(), "avx2", "a.so"), r"a sequence, such as \('avx2',\)"),
        (lambda: neocpu.combine(["a.so"], "b.so"), "a mapping from names of CPUs to files"),
    ],
)
def test_arguments_of_other_types(call, message):
    with pytest.raises(TypeError, match=message) as caught:
        call()
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_weights": "x"}, "max_weights must be a number of bytes"),
        ({"shapes": (1, 3, 5, 5)}, r"as \{'image': \(1, 3, 224, 224\)\}, .* got \(1, 3, 5, 5\)"),
    ],
)
def test_settings_that_mean_nothing(settings, message):
    with pytest.raises(UsageError, match=message):
        neocpu.compile(tiny(), **settings)


def test_the_batch():
    with neocpu.compile(tiny(), batch=4) as compiled, compiled.module() as module:
        assert [spec.shape for spec in module.inputs] == [(4, 3, 5, 5)]
        assert [spec.shape for spec in module.outputs] == [(4, 3, 5, 5)] * 3
    assert compiled.verification.ok


def test_a_plan_that_is_not_proven_is_warned_of(monkeypatch, caplog):
    def solve(graph, solver, limits):
        assert (solver, limits.seconds) == ("auto", 0.5)
        found = search.solve(graph, solver, limits)
        return replace(found, cost=1.0, lower_bound=0.8, gap=0.2, solver="branch-and-bound")

    monkeypatch.setattr("neocpu.planning.optimisation_levels.solve", solve)
    with caplog.at_level("WARNING", "neocpu"):
        compiled = neocpu.compile(tiny(), threads=1, search_seconds=0.5)
    with compiled:
        verdict = compiled.plan.search.verdict
    assert verdict == (
        "not proven optimal: at most 25 % above the best plan; raise --search-seconds"
    )
    assert caplog.messages == [f"the layout plan is {verdict}"]


@pytest.mark.parametrize("solver", ["exact", "dp", "pbqp"])
def test_every_solver_compiles(solver):
    with neocpu.compile(tiny(), threads=1, solver=solver) as compiled:
        assert compiled.plan.search.solver == solver


@pytest.fixture
def broken_oracles(monkeypatch):
    def broken(model, inputs, **how):
        raise NotImplementedError("no such operator here")

    for name in ("run_reference", "onnxruntime_oracle.run_onnxruntime"):
        monkeypatch.setattr(f"neocpu.verification.reference.oracles.{name}", broken)


def test_oracles_that_fail_are_not_a_traceback(broken_oracles):
    with pytest.raises(NeoCPUError, match=r"no such operator here.*verify=False") as caught:
        neocpu.compile(tiny(), threads=1)
    assert caught.value.exit_code == 6


def test_a_result_that_differs_is_refused(monkeypatch):
    monkeypatch.setattr(
        "neocpu.verification.reference.oracles.run_reference",
        lambda model, inputs, **how: {name: inputs["x"] + 1 for name in "abc"},
    )
    with pytest.raises(NeoCPUError, match="differs from the reference") as caught:
        neocpu.compile(tiny(), threads=1)
    assert caught.value.exit_code == 6


def test_a_failure_leaves_no_folder_behind(tmp_path, monkeypatch, broken_oracles):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # The exception holds the frames that hold the folder, so it is not the collector that deletes.
    with pytest.raises(NeoCPUError):
        neocpu.compile(tiny(), threads=1)
    assert not list(tmp_path.iterdir())


def test_several_threads_may_compile():
    def largest_error(_: int) -> float:
        with neocpu.compile(tiny(), threads=1) as compiled:
            return compiled.verification.max_abs_error

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(largest_error, range(4))) == [0.0] * 4


def test_the_callers_model_stays_as_it_was():
    model = tiny()
    before = model.SerializeToString()
    neocpu.compile(model, threads=1).close()
    assert model.SerializeToString() == before


def test_results_stay_when_their_memory_is_used_again():
    x = np.random.default_rng(0).standard_normal((1, 3, 5, 5)).astype("float32")
    with neocpu.compile(tiny(), threads=1, verify=False) as compiled:
        assert compiled.header.arena_bytes == x.nbytes == compiled.plan.activation_bytes
        with compiled.module() as module:
            first = module(x)
            again = module(-x)
    for results, data in ((first, x), (again, -x)):
        for result, expected in zip(results, (np.maximum(data, 0),) * 2 + (data,), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_dump_folder_holds_every_phase(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOCPU_DUMP_DIR", str(tmp_path))
    neocpu.compile(tiny(), threads=1, verify=False).close()
    phases = [path.stem.partition("-")[2] for path in sorted(tmp_path.iterdir())]
    assert phases == ["import", "simplify", "rewrite", "fused", "planned", "assembly", "plan"]


def test_each_shape_has_a_dump_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOCPU_DUMP_DIR", str(tmp_path))
    model = tiny()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    shapes = [{"x": (n, 3, 5, 5)} for n in (1, 2)]
    neocpu.compile(model, threads=1, verify=False, shapes=shapes).close()
    folders = sorted(tmp_path.iterdir())
    assert [folder.name for folder in folders] == ["shape-1", "shape-2"]
    plans = {path.read_text() for folder in folders for path in folder.glob("*-plan.json")}
    assert len(plans) == 2


def test_a_dump_folder_that_cannot_be_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NEOCPU_DUMP_DIR", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot write .*file/00-import\.py: .*NEOCPU_DUMP_DIR"):
        neocpu.compile(tiny(), threads=1, verify=False)


@pytest.mark.parametrize(("kernel", "dilation"), [(7, 1), (3, 3)])
def test_a_kernel_larger_than_its_image_is_named(kernel, dilation):
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="big", dilations=[dilation, dilation])
    weights, image = np.ones((2, 3, kernel, kernel), np.float32), {"x": (1, 3, 5, 5)}
    model = float_model("toobig", [node], image, {"y": (1, 2, "h", "w")}, {"w": weights})
    with pytest.raises(UnsupportedError, match=r"Conv 'big': its kernel spans 7 pixels.*has 5"):
        neocpu.compile(model, threads=1)


def test_the_convolutions_of_a_model_have_their_epilogues():
    net = NetworkBuilder("tiny", (1, 3, 16, 16), seed=0)
    x = net.relu(net.batch_norm(net.conv(net.input, "conv", 16, 3, padding=1), "bn"), "relu")
    workloads = convolutions(net.finish(net.classifier(x, "fc", 10)))
    assert [str(workload) for workload in workloads] == ["1x3x16x16 -> 16, 3x3 +bias_add +relu"]
