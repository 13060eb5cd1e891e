"""Tests that need something the machine lacks are skipped, with the reason."""

from pathlib import Path

import needs
import pytest

from tests import rotation

TESTS = Path(__file__).parent


def test_a_missing_program_is_named_with_its_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = needs.programs("llvm-mc", "llvm-mca", "cmake").kwargs["reason"]
    assert reason == "needs llvm-mc, llvm-mca, cmake (Debian: apt install llvm cmake)"
    with pytest.raises(
        pytest.skip.Exception, match=r"needs readelf \(Debian: apt install binutils"
    ):
        needs.program("readelf")
    tool = tmp_path / "readelf"
    tool.touch(0o755)
    assert needs.program("readelf") == str(tool)
    assert needs.programs("readelf").args == (False,)


def test_files(tmp_path):
    with pytest.raises(pytest.skip.Exception, match="none is not there"):
        needs.skip(needs.file(tmp_path / "none"))
    needs.skip(needs.file(tmp_path))


@pytest.mark.skipif(needs.EVERYTHING, reason="samples are of everything")
def test_a_sample_follows_the_offset(monkeypatch):
    monkeypatch.setenv(rotation.VARIABLE, "7")
    assert needs.sample(range(10), 3) == range(2, 10, 3)
    assert all(rotation.runs(case, 10, 3, 7) for case in needs.sample(range(10), 3))


def test_nothing_else_looks_for_programs():
    others = [
        path.relative_to(TESTS).as_posix()
        for path in TESTS.rglob("*.py")
        if "shutil.which(" in path.read_text()
    ]
    # Three that are no tests: they make machines, or install a browser.
    machines = {"arm/sysroot.py", "fresh/machine.py", "chromium.py"}
    tests = {name for name in others if not name.startswith("experiments/")}
    assert tests - machines - {Path(__file__).name} == {"needs.py"}
