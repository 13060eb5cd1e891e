"""The public face of `neocpu`: names, types, help, and errors that users catch."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import neocpu
from neocpu.cli.tune import command as tune_command
from neocpu.compilation.compile_options import CompileOptions, CompileSettings
from neocpu.compilation.network_tuning import STRATEGIES
from neocpu.foundation import errors, option_words
from neocpu.foundation.given_json import given_json
from neocpu.planning.optimisation_levels import OptLevel
from neocpu.planning.precision import Precision
from neocpu.quantiser.quantise_options import AUTO
from neocpu.quantiser.ranges import METHODS
from neocpu.schedules.vocabulary.accuracy import LEVELS

ROOT = Path(__file__).parents[2]
FOLDERS = ("core", "foundation", "schedules", "search", "tuning_db")

GOOD = """
import concurrent.futures
import numpy as np
import neocpu
from neocpu import ArtifactError, CompiledModule, Module, NeoCPUError, load

neocpu.compile("resnet50.onnx").export("resnet50.so")
m = neocpu.load("resnet50.so")
y = m(np.zeros((1, 3, 224, 224), "float32"))
best: int = int(y.argmax())
scores: np.ndarray = y[0] * 2

class Tensor:
    def __dlpack__(self, stream: object = None) -> object:
        return y.__dlpack__()
    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

boxes, kept = m(y, Tensor(), out=[y, y])
named = m({"image": y, "mask": bytearray(4)})
found: np.ndarray = named["boxes"]
again: dict[str, np.ndarray] = m.run({"image": y}, out={"boxes": y})
future: concurrent.futures.Future[np.ndarray] = m.submit(y)
later: concurrent.futures.Future[dict[str, np.ndarray]] = m.submit({"image": y})
m([y, y]), m((y, y))

def compiled(path: str) -> CompiledModule:
    return neocpu.compile(
        path, precision="int8", goal="throughput", opt="global", accuracy="strict", solver="dp",
        shapes={"x": (1, 3, 8, 8), "n": 3}, tune_budget="60s", threads=2,
    )

neocpu.compile(
    "x.onnx", shapes={"x": (1, 3, range(8, 33, 8)), "n": range(1, 9), "s": 5}, typical=(1, 3, 16)
)
neocpu.compile("x.onnx", shapes={"x": (range(8, 33), 8)}, typical={"x": (16, 8), "n": 4})
neocpu.compile_fat("x.onnx", ["avx2"], "x.so", shapes={"n": range(1, 9)}, typical={"n": 4})
neocpu.compile("x.onnx", shapes=[{"x": (1, 3, 8, 8)}, {"x": (8, 3, 8, 8)}])
neocpu.compile_calibrated("x.onnx", [y], precision="int8", threads=2, opt="uniform")
neocpu.compile_fat("x.onnx", ("avx2", "rpi4"), "x.so", precision="auto", verify=False)
neocpu.tune(["x.onnx"], strategy="grid", budget="10m")
neocpu.quantize("x.onnx", y, neocpu.QuantiseOptions(method="mse")).save("q.onnx")
try:
    with load("x.so", threads="performance", streams=1) as module:
        module.warmup()
except (ArtifactError, NeoCPUError) as error:
    print(error.exit_code)
except FileNotFoundError:
    pass
version: str = neocpu.__version__
"""

BAD = (
    'neocpu.complie("x.onnx")',
    "from neocpu import complie",
    'neocpu.compile("x.onnx", precision="fp33")',
    'neocpu.compile("x.onnx", goal="speed")',
    'neocpu.compile("x.onnx", opt="locla")',
    'neocpu.compile("x.onnx", accuracy="strickt")',
    'neocpu.compile("x.onnx", solver="ilp")',
    'neocpu.compile("x.onnx", shape={"x": (1, 3)})',
    'neocpu.compile("x.onnx", shapes={"n": range(1, 9)}, typical={"n": "4"})',
    'neocpu.compile("x.onnx", threads="2")',
    'neocpu.compile_fat("x.onnx", ("avx2",), "x.so", shape={"x": (1, 3)})',
    'neocpu.compile_fat("x.onnx", ("avx2",), "x.so", opt="locla")',
    'neocpu.compile_calibrated("x.onnx", [y], precision="fp33")',
    'neocpu.compile_calibrated("x.onnx", [y], goal="speed")',
    'neocpu.tune(["x.onnx"], strategy="xbg")',
    'neocpu.QuantiseOptions(method="mze")',
    'neocpu.QuantiseOptions(correction="weigths")',
    'neocpu.load("x.so", threads="fast")',
    'neocpu.load("x.so", stream=2)',
    'm("photo.jpg")',
    "m(3.0)",
    "m(y).argmx()",
    "m(y, output=y)",
    "m(y, out={'y': y})",
    "m.run(y)",
    "m.run({'x': y}, {'y': y})",
    "m.rn({'x': y})",
    "m({'x': y}, out=y)",
)


@pytest.mark.slow
def test_type_checkers_see_all_public_names(tmp_path: Path) -> None:
    """Every line of `BAD` is an error, and no line of `GOOD` or the README is."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    installed = tmp_path / "installed" / "neocpu"
    installed.mkdir(parents=True)
    # As in a wheel: a type checker does not follow an editable installation's mapping of folders.
    for folder in ((ROOT / "neocpu").iterdir(), (ROOT / name for name in FOLDERS)):
        for path in folder:
            (installed / path.name).symlink_to(path)
    assert (installed / "py.typed").exists()
    begin = "import numpy as np\nimport neocpu\nm = neocpu.load('x.so')\ny = np.zeros(3)\n"
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "readme.py").write_text("\n".join(examples))
    (tmp_path / "bad.py").write_text(begin + "\n".join(BAD) + "\n")
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = true\n[mypy-neocpu.*]\nignore_errors = true\n"
        "[mypy-tvm.*,onnx.*,onnxscript.*,tvm_ffi.*,torch.*,torchvision.*]\n"
        "ignore_missing_imports = true\nfollow_imports = skip\nfollow_imports_for_stubs = true\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            "mypy.ini",
            "good.py",
            "readme.py",
            "bad.py",
        ],
        cwd=tmp_path,
        env={"MYPYPATH": str(installed.parent), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert not [line for line in found if not line.startswith("bad.py:")], done.stdout
    start = begin.count("\n") + 1
    wrong = {int(line.split(":")[1]) - start for line in found}
    assert [line for number, line in enumerate(BAD) if number not in wrong] == []


def test_help_begins_with_the_functions_to_call() -> None:
    text = pydoc.plain(pydoc.render_doc(neocpu))
    top = "\n".join(text.splitlines()[:16])
    for call in ("neocpu.compile(", "neocpu.load(", "y = m(x)", "compile_calibrated("):
        assert call in top
    listed = [name for name in dir(neocpu) if not name.startswith("__")]
    assert listed == [name for name in sorted(neocpu.__all__) if name != "__version__"]
    assert all(hasattr(neocpu, name) for name in neocpu.__all__)
    with pytest.raises(AttributeError, match="no attribute 'complie'"):
        _ = neocpu.complie


def test_all_errors_are_at_the_top() -> None:
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.NeoCPUError)
    }
    assert kinds <= set(neocpu.__all__)
    assert all(getattr(neocpu, name) is getattr(errors, name) for name in kinds)


@pytest.mark.parametrize("name", [name for name in neocpu.__all__ if name.endswith("Error")])
def test_errors_survive_the_way_between_processes(name: str) -> None:
    error = getattr(neocpu, name)("what, where and how")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert (str(again), again.args) == ("what, where and how", error.args)
        assert again.exit_code == error.exit_code


def test_errors_are_also_pythons_own_exceptions(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    for raising, kind, own in (
        (lambda: neocpu.load(gone), FileNotFoundError, neocpu.ArtifactError),
        (lambda: neocpu.compile(f"{gone}.onnx"), FileNotFoundError, neocpu.ModelError),
        (lambda: neocpu.quantize("resnet18", str(gone)), FileNotFoundError, neocpu.UsageError),
        (lambda: neocpu.compile("resnet18", precision="fp33"), ValueError, neocpu.UsageError),
        (lambda: neocpu.compile("resnet18", precision=3), ValueError, neocpu.UsageError),
        (lambda: neocpu.compile("resnet18", threads="2"), TypeError, neocpu.UsageError),
        (lambda: neocpu.compile("resnet18", threads=0), ValueError, neocpu.UsageError),
        (lambda: neocpu.compile("resnet18", tune_budget=[]), TypeError, neocpu.UsageError),
        (lambda: neocpu.compile("resnet18", target="avx3"), ValueError, neocpu.TargetError),
        (
            lambda: neocpu.compile("resnet18", databases=[gone], only_databases=True),
            FileNotFoundError,
            neocpu.DatabaseError,
        ),
    ):
        with pytest.raises(kind) as caught:
            raising()
        assert isinstance(caught.value, own)
        assert "Error" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_error_of_ours_passes_where_python_s_are_caught(tmp_path: Path) -> None:
    """The error is of Python's class too, and its message already says what is wrong."""
    path = tmp_path / "a.json"
    path.write_text("{}")
    with (
        pytest.raises(neocpu.UsageError, match=r"^ours$"),
        given_json(path, "--list", "list", 100, "make one"),
    ):
        raise neocpu.UsageError("ours")


def test_every_word_is_known_where_it_is_used() -> None:
    assert set(option_words.PRECISIONS) == set(Precision)
    assert set(option_words.OPT_LEVELS) == set(OptLevel)
    assert get_args(option_words.AccuracyName) == tuple(LEVELS)
    assert get_args(option_words.StrategyName) == tuple(STRATEGIES)
    assert option_words.METHODS == (*METHODS, AUTO)
    strategy = next(one for one in tune_command.params if one.name == "strategy")
    assert strategy.default in STRATEGIES
    settings = set(CompileSettings.__annotations__)
    own = {"model", "target", "precision", "max_error", "on_progress"}
    assert settings == set(inspect.signature(neocpu.compile).parameters) - own
    assert settings == set(inspect.signature(CompileOptions.parse).parameters) - {"precision"}


def test_a_module_is_called_as_it_is_typed() -> None:
    """The argument `out` is not taken for a second input."""
    for call in (neocpu.Module.__call__, neocpu.Module.submit, neocpu.Module.run):
        assert inspect.signature(call).parameters["out"].kind is inspect.Parameter.KEYWORD_ONLY
    assert isinstance(neocpu.aligned_empty((2,), "float32"), np.ndarray)
