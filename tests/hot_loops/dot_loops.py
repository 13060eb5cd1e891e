"""The hot loops of convolutions in 8 bits and bfloat16, found in their assembly."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from neocpu.schedules import registry
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp
from tests.conv_workloads import conv_workload
from tests.schedules.kernel_harness import compile_for

_ARM: Final = "llvm -mtriple=aarch64-linux-gnu -mcpu="
#: CPUs with each kind of dot instruction, and its name in LLVM's assembly.
TARGETS: Final = {
    "znver4": (parse_target("llvm -mcpu=znver4"), "vpdpbusd"),
    "cascadelake": (parse_target("llvm -mcpu=cascadelake"), "vpdpbusd"),
    "alderlake": (parse_target("llvm -mcpu=alderlake"), r"\{vex\} vpdpbusd"),
    "neoverse-v1": (parse_target(f"{_ARM}neoverse-v1"), "sudot|usdot"),
    "cortex-a76": (parse_target(f"{_ARM}cortex-a76"), "sdot"),
}

#: CPUs that multiply several pixels at once, and the instructions in 8 bits and in bfloat16.
MATRIX_TARGETS: Final = {
    "sapphirerapids": (parse_target("llvm -mcpu=sapphirerapids"), "tdpbusd", "tdpbf16ps"),
    "neoverse-v1": (TARGETS["neoverse-v1"][0], "usmmla", "bfmmla"),
}

_NUMERICS = Numerics(data="uint8", weights="int8", sum="int32", output="uint8")
_EPILOGUE = (
    *(EpilogueOp(kind) for kind in ("bias_add", "rescale", "relu")),
    EpilogueOp("quantise", (0.0,)),
)
# Input channels, pixels along an edge, output channels, kernel, stride.
_RESNET_50 = (
    (3, 224, 64, 7, 2),
    *((64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1)),
    *((256, 56, 128, 1, 1), (128, 56, 128, 3, 2), (128, 28, 512, 1, 1), (256, 56, 512, 1, 2)),
    *((512, 28, 128, 1, 1), (128, 28, 128, 3, 1), (512, 28, 256, 1, 1), (256, 28, 256, 3, 2)),
    *((256, 14, 1024, 1, 1), (512, 28, 1024, 1, 2), (1024, 14, 256, 1, 1), (256, 14, 256, 3, 1)),
    *((1024, 14, 512, 1, 1), (512, 14, 512, 3, 2), (512, 7, 2048, 1, 1), (1024, 14, 2048, 1, 2)),
    *((2048, 7, 512, 1, 1), (512, 7, 512, 3, 1)),
)
_MOBILENET_V2 = (
    (3, 224, 32, 3, 2),
    *((32, 112, 16, 1, 1), (16, 112, 96, 1, 1), (96, 56, 24, 1, 1), (24, 56, 144, 1, 1)),
    *((144, 56, 24, 1, 1), (144, 28, 32, 1, 1), (32, 28, 192, 1, 1), (192, 28, 32, 1, 1)),
    *((192, 14, 64, 1, 1), (64, 14, 384, 1, 1), (384, 14, 64, 1, 1), (384, 14, 96, 1, 1)),
    *((96, 14, 576, 1, 1), (576, 14, 96, 1, 1), (576, 7, 160, 1, 1), (160, 7, 960, 1, 1)),
    *((960, 7, 160, 1, 1), (960, 7, 320, 1, 1), (320, 7, 1280, 1, 1)),
)
#: Those of their convolutions that are of one group.
WORKLOADS: Final = tuple(
    replace(
        conv_workload(1, channels, size, size, outputs, (kernel,) * 2, stride=(stride,) * 2),
        padding=(kernel // 2,) * 4,
        numerics=_NUMERICS,
        epilogue=_EPILOGUE,
    )
    for channels, size, outputs, kernel, stride in (*_RESNET_50, *_MOBILENET_V2)
)

#: ResNet-50's share of them.
RESNET_50: Final = WORKLOADS[: len(_RESNET_50)]

_LABEL: Final = re.compile(r"(\.?\w+):")
_JUMP: Final = re.compile(r"(?:j\w+|b|b\.\w+|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.\w+)$")
_LOAD: Final = re.compile(
    r"v(?:mov[au]p[sd]|movdq[au]\d*|p?broadcast\w+)\s+[^,%]*\(.*\), %[xyz]mm"
    r"|(?:ldu?r|ldp)\s+[sdq]\d|ld1r?\s"
)
_STACK: Final = re.compile(r"\(%rsp[,)]|\[sp\b")


@dataclass(frozen=True, slots=True)
class HotLoop:
    """The innermost loop with the most dot instructions, the jump back last."""

    body: tuple[str, ...]
    dots: int

    @property
    def loads(self) -> int:
        """Instructions that load vectors, or broadcast what they load."""
        return sum(bool(_LOAD.match(one)) for one in self.body)

    @property
    def spills(self) -> tuple[str, ...]:
        """Instructions that read or write the stack."""
        return tuple(one for one in self.body if _STACK.search(one))

    @property
    def per_product(self) -> float:
        """All instructions but prefetches for each dot instruction."""
        return (len(self.body) - self.prefetches) / self.dots

    @property
    def prefetches(self) -> int:
        return sum(one.startswith("prefetch") for one in self.body)

    @property
    def per_dot(self) -> float:
        """Instructions for each dot instruction, itself among them, and loads not."""
        return (len(self.body) - self.loads) / self.dots


@cache
def compiled(workload: Conv2dWorkload, cpu: str) -> tuple[Scheme, HotLoop]:
    """Return the direct scheme with the best estimate, and its hot loop, for one of `TARGETS`."""
    target, instruction = TARGETS[cpu]
    every = registry.schemes(workload, target)
    scheme = next(scheme for scheme in every if scheme.template == "conv2d_dot")
    return scheme, hot_loop(
        compile_for(registry.lower(workload, scheme, target), target), instruction
    )


@cache
def compiled_matrix(workload: Conv2dWorkload, cpu: str) -> tuple[Scheme, HotLoop]:
    """Return the scheme that multiplies several pixels and its loop, for `MATRIX_TARGETS`."""
    target, of_bytes, of_halves = MATRIX_TARGETS[cpu]
    every = registry.schemes(workload, target)
    scheme = next(scheme for scheme in every if scheme.template == "conv2d_matrix")
    text = compile_for(registry.lower(workload, scheme, target), target)
    return scheme, hot_loop(text, of_bytes if workload.numerics.data == "uint8" else of_halves)


def is_multiplied_in_blocks(workload: Conv2dWorkload, cpu: str) -> bool:
    """Whether one of `MATRIX_TARGETS` has a scheme that multiplies several pixels at once."""
    every = registry.schemes(workload, MATRIX_TARGETS[cpu][0])
    return any(scheme.template == "conv2d_matrix" for scheme in every)


def share_of_dot_products(cpu: str, data: str) -> float:
    """Return ResNet-50's instructions by block products, relative to those by dot products.

    Only hot loops count, each weighted by the multiply-adds of its convolution.
    """
    target = MATRIX_TARGETS[cpu][0]
    ours = theirs = 0.0
    for each in RESNET_50:
        workload = each if data == "uint8" else in_bfloat16(each)
        _, loop = compiled_matrix(workload, cpu)
        dot = next(s for s in registry.schemes(workload, target) if s.template == "conv2d_dot")
        text = compile_for(registry.lower(workload, dot, target), target)
        other = hot_loop(text, "sudot|usdot" if data == "uint8" else "bfdot")
        matrix, vector = (
            unit.macs
            for unit in (
                target.find_matrix_unit(workload.numerics),
                target.dot_unit(workload.numerics),
            )
        )
        ours += workload.flops * loop.per_product / matrix
        theirs += workload.flops * other.per_product / vector
    return ours / theirs


def in_bfloat16(workload: Conv2dWorkload) -> Conv2dWorkload:
    """Return a convolution as networks in bfloat16 have it."""
    halves = Numerics(data="bfloat16", weights="bfloat16", sum="float32", output="bfloat16")
    steps = tuple(EpilogueOp(kind) for kind in ("bias_add", "relu"))
    return replace(workload, numerics=halves, epilogue=steps)


def hot_loop(assembly: str, instruction: str) -> HotLoop:
    """Return the hot loop of LLVM's output for AArch64, or for x86-64 in AT&T's syntax.

    The dot instruction's name is a regular expression.
    """
    lines, labels = _instructions(assembly)
    dots = [bool(re.match(rf"(?:{instruction})\s", line)) for line in lines]
    spans = [
        (first, last)
        for last, line in enumerate(lines)
        if (jump := _JUMP.match(line)) and (first := labels.get(jump[1], last + 1)) <= last
    ]
    innermost = [
        (first, last)
        for first, last in spans
        if not any((f, e) != (first, last) and first <= f and e <= last for f, e in spans)
    ]
    ends = [bool(re.match(r"tilezero|tilestored", line)) for line in lines]
    if any(ends):  # what is between them, where it is no loop
        whole = [(f, e) for f, e in innermost if not any(ends[f : e + 1]) and any(dots[f : e + 1])]
        zero = max(place for place, line in enumerate(lines) if line.startswith("tilezero"))
        innermost = whole or [(zero + 1, ends.index(True, zero + 1) - 1)]
    first, last = max(innermost, key=lambda span: sum(dots[span[0] : span[1] + 1]))
    return HotLoop(tuple(lines[first : last + 1]), sum(dots[first : last + 1]))


def _instructions(assembly: str) -> tuple[list[str], dict[str, int]]:
    """Return the instructions but no-ops, and the place of each label among them."""
    lines: list[str] = []
    labels: dict[str, int] = {}
    for text in assembly.splitlines():
        line = re.split(r"\s*(?:# |//)", text.strip(), maxsplit=1)[0].replace("\t", " ")
        if label := _LABEL.match(line):
            labels[label[1]] = len(lines)
        elif line and line != "nop" and not line.startswith((".", "#")):
            lines.append(line)
    return lines, labels
