"""The system that emulated programs see."""

import pytest

from neocpu.bench.instructions.arm_system import open_system
from neocpu.foundation.errors import UsageError


@pytest.fixture
def sysroot(tmp_path):
    root = tmp_path / "sysroot"
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "usr" / "bin" / "python3.11").touch()
    for package in ("neocpu", "ncnn"):
        (root / "usr" / "lib" / "python3" / "dist-packages" / package).mkdir(parents=True)
    return root


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_programs_see_the_system_and_a_boards_cpu(sysroot, folder):
    system = open_system(sysroot, ("ncnn",), folder)
    assert system.python == sysroot / "usr" / "bin" / "python3.11"
    assert (system.root / "usr" / "bin" / "python3.11").exists()
    cpuinfo = (system.root / "proc" / "cpuinfo").read_text()
    assert cpuinfo.count("CPU part\t: 0xd08") == 4
    caches = system.root / "sys/devices/system/cpu/cpu3/cache"
    assert (caches / "index0" / "shared_cpu_list").read_text() == "3\n"
    assert (caches / "index2" / "size").read_text() == "1024K\n"
    # The sysroot itself, which tests share, is left alone.
    assert not (sysroot / "proc").exists()


def test_a_system_that_is_not_there_or_lacks_an_engine_is_named(sysroot, folder, tmp_path):
    with pytest.raises(UsageError, match=r"no AArch64 system in .*nowhere: .*--sysroot"):
        open_system(tmp_path / "nowhere", (), folder)
    with pytest.raises(UsageError, match=r"lacks onnxruntime: .*sysroot onnxruntime"):
        open_system(sysroot, ("ncnn", "onnxruntime"), folder)
