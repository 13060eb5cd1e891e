"""A run of the tests that leaves files in the checkout fails, and names them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout_tree import broken_bytecode, differences, snapshot

TESTS = Path(__file__).parent


@pytest.fixture
def checkout(tmp_path):
    """A checkout with the project's test settings, and an imported module."""
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "checkout_tree.py", "rotation.py"):
        shutil.copy(TESTS / name, tmp_path / "tests")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = . tests\n")
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "module.py").write_text("def f():\n    return 1\n")
    return tmp_path


def run_tests(checkout, body, *options):
    """Run one test of that body in the checkout."""
    source = f"from pathlib import Path\nimport room.module\ndef test_it():\n    {body}\n"
    (checkout / "tests" / "test_it.py").write_text(source)
    # Not as part of the run of this test.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_a_test_that_leaves_nothing_passes(checkout):
    body = "[Path(p).mkdir() for p in ('build', '.hypothesis', 'room/.mypy_cache')]"
    done = run_tests(checkout, body)
    assert done.returncode == 0, done.stdout
    assert list(checkout.glob("room/__pycache__/module.*.pyc"))


@pytest.mark.parametrize("options", [(), ("-n", "1", "--dist", "loadfile")], ids=["one", "xdist"])
@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("Path('room/planted').touch()", "came:    {}/room/planted"),
        (
            "p = Path(next(Path('room/__pycache__').glob('module.*.pyc'))); "
            "p.write_bytes(p.read_bytes()[:100])",
            "broken:  {}/room/__pycache__/module." + f"{sys.implementation.cache_tag}.pyc",
        ),
    ],
    ids=["file", "bytecode"],
)
def test_files_that_a_test_leaves_fail_the_run(checkout, body, line, options):
    done = run_tests(checkout, body, *options)
    assert "1 passed" in done.stdout
    assert done.returncode == 1
    assert done.stdout.count(line.format(checkout)) == 1, done.stdout


def test_every_kind_of_change_is_seen(checkout):
    room = checkout / "room"
    (room / "link").symlink_to("module.py")
    (room / "gone").touch()
    before = snapshot(checkout)
    assert before == snapshot(checkout)
    (room / "module.py").write_text("def f():\n    return 2\n")  # of the same size
    (room / "link").unlink()
    (room / "link").symlink_to("other.py")
    (room / "gone").unlink()
    (room / "empty").mkdir()
    (checkout / "tests").chmod(0o700)
    assert differences(before, snapshot(checkout)) == [
        f"came:    {room}/empty",
        f"went:    {room}/gone",
        f"changed: {room}/link",
        f"changed: {room}/module.py",
        f"changed: {checkout}/tests",
    ]


def test_bytecode_cut_anywhere_is_broken(checkout):
    import py_compile

    source = checkout / "room" / "module.py"
    path = Path(py_compile.compile(str(source), doraise=True))
    whole = path.read_bytes()
    assert broken_bytecode(checkout) == []
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert broken_bytecode(checkout) == [f"broken:  {path}"], length
    path.write_bytes(b"\0" * 4 + whole[4:])  # of another Python
    assert broken_bytecode(checkout) == []
