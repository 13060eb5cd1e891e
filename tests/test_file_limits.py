"""A process under a limit on the size of files writes no bytecode, which would be truncated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from file_limits import files_up_to, run_with_files_up_to

TESTS = Path(__file__).parent
CHILD = [
    sys.executable,
    "-c",
    "import sys; sys.path.insert(0, ''); import module; open('full', 'wb', 0).write(bytes(200))\n"
    "open('full', 'ab', 0).write(b'!')",
]


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    (tmp_path / "module.py").write_text(f"text = {'x' * 1000!r}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)


def as_command():
    return run_with_files_up_to(100, CHILD, dict(os.environ), capture_output=True, text=True)


def as_child():
    with files_up_to(100):
        return subprocess.run(CHILD, capture_output=True, text=True)


@pytest.mark.parametrize("run", [as_command, as_child])
def test_a_child_writes_no_bytecode(run, tmp_path):
    done = run()
    assert "File too large" in done.stderr
    assert (tmp_path / "full").stat().st_size == 100
    assert sorted(os.listdir(tmp_path)) == ["full", "module.py"]
    assert subprocess.run(CHILD).returncode == 0
    assert len(list(tmp_path.glob("__pycache__/module.*.pyc"))) == 1, "nothing was to be prevented"


def test_this_process_writes_none_while_it_is_limited(tmp_path):
    before = sys.dont_write_bytecode
    with files_up_to(100):
        assert sys.dont_write_bytecode
        with pytest.raises(OSError, match="File too large"):
            (tmp_path / "full").write_bytes(bytes(1000))
    assert sys.dont_write_bytecode == before
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ
    (tmp_path / "full").write_bytes(bytes(1000))


def test_nothing_else_sets_such_limits():
    users = [path for path in TESTS.rglob("*.py") if "RLIMIT_FSIZE" in path.read_text()]
    assert sorted(path.name for path in users) == ["file_limits.py", Path(__file__).name]
