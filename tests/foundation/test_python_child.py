"""Children that run Python: made in one place, and without the current folder on their path."""

import json
import re
import subprocess

import pytest

from neocpu.foundation import python_child
from neocpu.foundation.python_child import module_command, program_command
from wheels.runtime import FOLDERS

#: The interpreter, and what starts it by itself, the current folder first on its path.
STARTS = re.compile(
    r"\bsys\.executable|import executable|\bProcessPoolExecutor|\bpopen_pool"
    r"|\bmultiprocessing\.(Pool|Process|get_context|set_start_method)\b|from multiprocessing import"
)
#: The second one tells users which interpreter it is.
EXCEPTED = (f"{python_child.__name__.rpartition('.')[2]}.py", "runtime_health.py")


def test_a_child_gets_its_arguments_and_not_the_folder(tmp_path):
    (tmp_path / "json.py").write_text("raise RuntimeError('of the current folder')")
    program = "import json, sys; print(json.dumps([*sys.argv[1:], *sys.path]))"
    command = program_command(program, 1, tmp_path / "a b")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    first, second, *path = json.loads(done.stdout)
    assert (first, second) == ("1", str(tmp_path / "a b"))
    assert not {"", str(tmp_path)} & {*path}
    command = module_command("json.tool", "--compact")
    done = subprocess.run(command, cwd=tmp_path, input=b"[ 1 ]", stdout=subprocess.PIPE, check=True)
    assert done.stdout.split() == [b"[1]"]


def test_no_other_module_starts_python():
    found = [
        (str(path), word[0])
        for folder in FOLDERS.values()
        for path in folder.rglob("*.py")
        if path.name not in EXCEPTED
        for word in STARTS.finditer(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "[sys.executable, '-c']",
        "from sys import executable",
        "from concurrent.futures import ProcessPoolExecutor",
        "multiprocessing.get_context('spawn')",
        "multiprocessing.Process(target=work)",
        "from tvm.support import popen_pool",
    ],
)
def test_code_that_starts_python_is_recognised(text):
    assert STARTS.search(text)
