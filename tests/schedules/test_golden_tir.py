"""The TIR of one scheme of each template, for an x86 and a NEON target, equals a reviewed file.

Review a difference, and if it is intended, update the files: ``pytest --update-golden
tests/schedules/test_golden_tir.py``. Each kernel follows its scheme, so that the order in which
schemes are tried may change.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conv_workloads import conv_workload

from neocpu.schedules import registry
from neocpu.schedules.vocabulary.memory_workloads import JoinWorkload, TransformWorkload
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import scheme_from_json
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

FOLDER = Path(__file__).parent / "golden"
TARGETS = {
    "avx512": parse_target("llvm -mcpu=skylake-avx512"),
    "neon": parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"),
}
# Targets that have the template's instructions.
WITH_DOT_PRODUCTS = {
    "avx512": parse_target("llvm -mcpu=cascadelake"),
    "neon": parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1"),
}
WITH_MATRICES = {
    "avx512": parse_target("llvm -mcpu=sapphirerapids"),
    "neon": WITH_DOT_PRODUCTS["neon"],
}
STEPS = (EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu"))
INTEGERS = Numerics(data="uint8", weights="int8", sum="int32", output="uint8")
ROUNDED = tuple(EpilogueOp(kind) for kind in ("bias_add", "rescale", "relu", "round"))


def conv(channels, filters, side=3, epilogue=STEPS, **more):
    """Return a convolution of odd sizes, so that there are tails to review."""
    more["padding"] = (side // 2,) * 4
    size = (1, channels, 9, 11, filters, (side, side))
    return conv_workload(*size, epilogue=epilogue, **more)


def integers(channels, filters):
    return conv(channels, filters, epilogue=ROUNDED, numerics=INTEGERS)


WORKLOADS = {
    "conv2d_direct": conv(32, 32),
    "conv2d_nchw": conv(5, 7),
    "conv2d_depthwise": conv(32, 32, groups=32),
    "conv2d_grouped": conv(64, 64, groups=4),
    "conv2d_pointwise": conv(32, 48, 1),
    "conv2d_strassen": conv(72, 64, 1),
    "conv2d_winograd": conv(32, 32),
    "conv2d_dot": integers(32, 32),
    "conv2d_matrix": integers(64, 32),
    "conv2d_split": conv(64, 32),
    "conv2d_winograd_integers": integers(32, 32),  # without an instruction on NEON
    "layout_transform": TransformWorkload(
        batch=1, channels=32, height=9, width=11, in_block=1, out_block=16
    ),
    "join": JoinWorkload(
        operator="concat", batch=1, channels=(32, 32), height=9, width=11, block=16
    ),
}


NAMES = [*registry.TEMPLATES, *(WORKLOADS.keys() - registry.TEMPLATES.keys())]


def template_of(name: str):
    return registry.TEMPLATES[name.removesuffix("_integers")]


def workload_of(name: str):
    """Return the workload that is named for a template, or the first one that it computes."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    each = template_of(name)
    own = [workload for workload in WORKLOADS.values() if type(workload) is each.workload]
    found = (one for one in own if each.applies(one, TARGETS["avx512"]))
    return next(found)


def targets_of(name: str):
    """Return the targets on which a template computes its workload."""
    if name in ("conv2d_matrix", "conv2d_split"):
        targets = WITH_MATRICES
    else:
        numerics = getattr(workload_of(name), "numerics", None)
        targets = WITH_DOT_PRODUCTS if numerics == INTEGERS else TARGETS
    applies = template_of(name).applies
    return {key: cpu for key, cpu in targets.items() if applies(workload_of(name), cpu)}


def reviewed(name: str) -> dict[str, str]:
    """Return the kernels of a template's file by target: the scheme in JSON, then its TIR."""
    path = FOLDER / f"{name}.txt"
    text = path.read_text() if path.exists() else ""
    _, *parts = re.split(r"^# (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def scheme_of(name: str, target: str, cpu, *, updating: bool):
    """Return the reviewed scheme, or the first one if there is none."""
    if target in reviewed(name):
        try:
            return scheme_from_json(json.loads(reviewed(name)[target].partition("\n")[0]))
        except ValueError:
            if not updating:
                raise
    assert updating, f"no {name}.txt for {target} yet: run pytest --update-golden on this file"
    return template_of(name).space(workload_of(name), cpu)[0]


@pytest.mark.parametrize("name", NAMES)
def test_tir_is_as_it_was_reviewed(request, name):
    updating = request.config.getoption("--update-golden")
    found = {}
    for target, cpu in targets_of(name).items():
        scheme = scheme_of(name, target, cpu, updating=updating)
        func = template_of(name).lower(workload_of(name), scheme, cpu, 2)
        found[target] = f"{json.dumps(scheme.to_json())}\n{func.script(show_meta=False)}\n"
    if updating:
        text = "".join(f"# {target}\n{kernel}" for target, kernel in found.items())
        (FOLDER / f"{name}.txt").write_text(text)
    assert found == reviewed(name)
