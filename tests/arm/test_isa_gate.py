"""Code for another CPU is refused before any of it runs: on emulated CPUs that really lack it."""

import signal

import needs
import numpy as np
import pytest
from emulator import arm_python, x86_python
from small_model import IMAGE, small_model

import neocpu
from neocpu.compilation import artifact_header
from neocpu.foundation.errors import TargetError
from neocpu.runtime.header import ArtifactHeader
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.verification.reference.runner import run_reference

x86_64 = needs.machine("x86_64")
TARGETS = {
    "sse": "llvm -mtriple=x86_64-linux-gnu -mcpu=nehalem",
    "avx2": "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell",
    "avx512": "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512",
    "rpi4": "rpi4",
    "rpi5": "rpi5",
}
# For each module: its output's sum and its target, or the error.
RUN = """
import sys
import numpy
import neocpu
from neocpu.foundation.errors import NeoCPUError
for path in sys.argv[1:]:
    try:
        with neocpu.load(path) as module:
            total = module(numpy.ones(module.inputs[0].shape, 'float32')).sum()
            print(total, module.metadata.target)
    except NeoCPUError as error:
        print(error.exit_code, error)
"""


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """The same small model for every target."""
    folder = tmp_path_factory.mktemp("gate")
    for name, target in TARGETS.items():
        with neocpu.compile(small_model(), target=target, threads=2, verify=False) as compiled:
            compiled.export(folder / f"{name}.so")
    return folder


@pytest.fixture(scope="module")
def expected():
    """Return the sum of the model's output for an input of ones."""
    ones = {"x": np.ones_like(IMAGE)}
    return float(run_reference(small_model(), ones)["y"].sum())


def check(done, names, refused, expected):
    """Check that modules ``refused`` are, for these reasons, and that the others are right."""
    assert done.returncode == 0, done.stderr
    answers = dict(zip(names, done.stdout.splitlines(), strict=True))
    for name, answer in answers.items():
        if name in refused:
            assert answer.startswith(f"{TargetError.exit_code} ")
            assert refused[name] in answer
        else:
            assert float(answer.split()[0]) == pytest.approx(expected, rel=1e-5)


@x86_64
@pytest.mark.parametrize(
    ("cpu", "refused"),
    [
        ("Nehalem", {"avx2": "lacks avx, avx2, bmi", "avx512": "avx512f", "rpi4": "aarch64"}),
        ("Haswell", {"avx512": "lacks avx512bw, avx512cd, avx512dq, avx512f, avx512vl"}),
        ("Haswell,-fma", {"avx2": "lacks fma", "avx512": "avx512f"}),
    ],
)
def test_x86_cpus_refuse_code_for_missing_instructions(artifacts, expected, cpu, refused):
    names = tuple(dict.fromkeys(("sse", "avx2", *refused)))
    paths = (artifacts / f"{name}.so" for name in names)
    check(x86_python(cpu, "-c", RUN, *paths), names, refused, expected)


@x86_64
def test_missing_instructions_kill_the_process_without_the_gate(monkeypatch):
    def silent(**fields):
        return ArtifactHeader(**{**fields, "isa_features": ()})

    monkeypatch.setattr(artifact_header, "ArtifactHeader", silent)
    target = TARGETS["avx2"]
    with neocpu.compile(small_model(), target=target, threads=2, verify=False) as compiled:
        done = x86_python("Nehalem", "-c", RUN, compiled.path)
    assert done.returncode == -signal.SIGILL, done.stdout


@pytest.mark.parametrize(
    ("cpu", "refused"),
    [
        ("cortex-a72", {"rpi5": "lacks dotprod, fullfp16, lse, rcpc, rdm", "avx512": "x86_64"}),
        ("cortex-a76", {"sse": "x86_64", "avx2": "x86_64"}),
    ],
)
def test_arm_boards_refuse_code_for_missing_instructions(artifacts, expected, cpu, refused):
    names = (*refused, "rpi4", *({"rpi5"} - refused.keys()))
    paths = (artifacts / f"{name}.so" for name in names)
    check(arm_python("-c", RUN, *paths, cpu=cpu), names, refused, expected)


@x86_64
@pytest.mark.parametrize("name", ["rpi4", "rpi5"])
def test_x86_refuses_arm_code(artifacts, name):
    with pytest.raises(TargetError, match="aarch64"):
        neocpu.load(artifacts / f"{name}.so")


@pytest.fixture(scope="module")
def fat(artifacts):
    """All these artifacts in one file."""
    path = artifacts / "fat.so"
    neocpu.combine({name: artifacts / f"{name}.so" for name in TARGETS}, path)
    return path


def check_target(done, name, expected):
    """Check that the variant called ``name`` ran."""
    assert done.returncode == 0, done.stderr
    total, target = done.stdout.strip().split(" ", 1)
    assert target == str(parse_target(TARGETS[name]))
    assert float(total) == pytest.approx(expected, rel=1e-5)


@x86_64
@pytest.mark.parametrize(("cpu", "name"), [("Nehalem", "sse"), ("Haswell", "avx2")])
def test_x86_cpus_take_their_part_of_a_fat_file(fat, expected, cpu, name):
    check_target(x86_python(cpu, "-c", RUN, fat), name, expected)


@pytest.mark.parametrize(("cpu", "name"), [("cortex-a72", "rpi4"), ("cortex-a76", "rpi5")])
def test_arm_boards_take_their_part_of_a_fat_file(fat, expected, cpu, name):
    check_target(arm_python("-c", RUN, fat, cpu=cpu), name, expected)
