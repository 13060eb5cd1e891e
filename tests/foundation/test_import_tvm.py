"""TVM is imported without PyTorch, for which a fake package stands in."""

import os
from functools import partial

import needs
import pytest
from scripts import run_script

#: As PyTorch does, it looks at all modules while it is imported; it has what TVM asks it for then.
TORCH = """
import sys
try:
    for module in list(sys.modules.values()):
        hasattr(module, "__file__")
except Exception as error:
    raise AttributeError("partially initialized module 'torch'") from error
class Tensor:
    __dlpack_c_exchange_api__ = None
class cuda:
    is_available = staticmethod(lambda: False)
def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)
    return object()  # an element type
"""
#: Reading an attribute of any module imports none.
NOTHING_LIES_IN_WAIT = """
import sys
before = set(sys.modules)
for module in list(sys.modules.values()):
    hasattr(module, "__file__")
assert set(sys.modules) == before, set(sys.modules) - before
assert None not in sys.modules.values()
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return what runs a script where PyTorch seems to be installed."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
    (tmp_path / "torch" / "version.py").touch()

    paths = filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))
    monkeypatch.chdir(tmp_path)
    return partial(run_script, quiet=False, PYTHONPATH=os.pathsep.join(paths))


def test_our_own_processes_do_without_pytorch_and_can_import_it_later(run):
    run(
        "from neocpu.foundation.import_tvm import import_tvm; import_tvm();"
        "import sys, neocpu.compilation.compiler, tvm; assert 'torch' not in sys.modules;"
        "assert tvm.runtime.disco is None;"
        + NOTHING_LIES_IN_WAIT
        + "import torch; assert torch.Tensor"
    )


def test_a_measuring_process_imports_tvm_without_pytorch(run):
    run(
        "from neocpu.search.measuring.local_measurer import KERNELS;"
        "import importlib, sys; module, _, name = KERNELS.partition(':');"
        "assert getattr(importlib.import_module(module), name)(None, 1);"
        "assert 'tvm' in sys.modules and 'torch' not in sys.modules"
    )


def test_modules_imported_before_tvm_stay_imported(run):
    run(
        "import torch; from neocpu.foundation.import_tvm import import_tvm; import_tvm();"
        "import sys; assert sys.modules['torch'] is torch"
    )


def test_a_program_of_others_compiles_beside_pytorch(run):
    run(
        "import neocpu.frontend;"
        + NOTHING_LIES_IN_WAIT
        + "import neocpu.compilation.compiler; assert 'torch' in sys.modules;"
        + NOTHING_LIES_IN_WAIT
    )


@pytest.mark.parametrize("command", ["compile", "tune", "compare", "reduce", "quantize"])
@needs.one_in(2)
def test_a_command_imports_the_compiler_beside_pytorch(run, tmp_path, command):
    """None of these commands needs PyTorch."""
    arguments = {
        "compile": ["missing.onnx"],
        "tune": ["missing.onnx"],
        "compare": ["missing.onnx", "missing.so"],
        "reduce": ["missing.onnx", "--check", "compiles"],
        "quantize": ["missing.onnx", "--calibrate", "missing.npz"],
    }[command]
    said = run(
        "import sys; from neocpu.cli.main import main;"
        f"code = main({[command, *arguments]!r});"
        "assert 'tvm' in sys.modules and 'torch' not in sys.modules;"
        "print(code)"
    )
    assert int(said) in (2, 3, 8)


def test_the_compiler_does_not_import_libraries_it_does_not_use(run):
    run(
        "from neocpu.foundation.import_tvm import import_tvm; import_tvm();"
        "import sys, neocpu.compilation.compiler;"
        "others = ('onnxscript', 'onnx.reference.ops', 'tvm.backend.trn',"
        "'neocpu.verification.reference.verification');"
        "assert not [name for name in others if name in sys.modules]"
    )
