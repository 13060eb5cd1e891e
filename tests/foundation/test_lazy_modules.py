"""Modules that run when something of them is first read."""

import subprocess
import sys


def run(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_module_runs_when_it_is_used_and_not_before():
    run(
        "import sys; from neocpu.foundation.lazy_modules import load_lazily;"
        "load_lazily('json'); import json; assert 'json.decoder' not in sys.modules;"
        "assert json.loads('[1]') == [1] and json.JSONDecodeError;"
        "import json as again; assert again.__file__ == json.__file__;"
        "load_lazily('json'); assert sys.modules['json'] is again"
    )


def test_so_does_one_of_which_a_part_is_imported():
    run(
        "import sys; from neocpu.foundation.lazy_modules import load_lazily;"
        "load_lazily('json'); import json.encoder as part;"
        "assert part.JSONEncoder().encode(1) == '1';"
        "load_lazily('json'); from json import dumps; assert dumps(1) == '1'"
    )


def test_one_that_is_not_installed_is_not_imported():
    run(
        "import sys; from neocpu.foundation.lazy_modules import load_lazily;"
        "load_lazily('no_such_module'); assert 'no_such_module' not in sys.modules"
    )


def test_the_compiler_does_not_wait_for_what_it_does_not_use():
    run(
        "import sys; from neocpu.foundation.own_process import import_little;"
        "import_little(); import neocpu.compiler; assert 'onnx_ir' in sys.modules;"
        "others = ('sympy.core', 'onnxscript', 'onnx.reference.ops',"
        "'neocpu.reference.verification',"
        "'tvm.backend.trn', 'tvm.runtime.disco.session', 'tvm.s_tir.meta_schedule.tune');"
        "assert not [name for name in others if name in sys.modules];"
        "import onnx_ir; assert str(onnx_ir.SymbolicDim('n') + 1) == 'n + 1';"
        "import tvm; assert tvm.s_tir.meta_schedule.tune_tir;"
        "from onnx.reference import ReferenceEvaluator"
    )
