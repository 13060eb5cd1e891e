"""Targets without quotes."""

import shlex

import pytest

from neocpu.cli.parsing.target_tokens import fold_target
from neocpu.schedules.vocabulary.target_parsing import parse_target

SKYLAKE = parse_target(
    {"kind": "llvm", "mcpu": "skylake-avx512", "mattr": ["+avx2"], "mtriple": "x86_64-linux-gnu"}
)
OPTIONS = "-mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -mattr=+avx2"


@pytest.mark.parametrize(
    "line",
    [
        f"compile net.onnx --target llvm {OPTIONS}",
        f"compile --target llvm {OPTIONS} net.onnx",
        f"compile --target {OPTIONS} net.onnx",
        f"compile --target=llvm {OPTIONS} net.onnx",
        f"compile --target 'llvm {OPTIONS}' net.onnx",
        f"compile '--target=llvm {OPTIONS}' net.onnx",
        "compile net.onnx --target 'llvm -mcpu=skylake-avx512' -mattr=+avx2 "
        "-mtriple=x86_64-linux-gnu",
        "compile net.onnx --target "
        """'{"mtriple": "x86_64-linux-gnu", "mcpu": "skylake-avx512", "mattr": ["+avx2"]}'""",
    ],
)
def test_every_spelling_is_the_same_target(line):
    folded = fold_target(shlex.split(line))
    (target,) = (token for token in folded if token.startswith("--target="))
    assert sorted(set(folded) - {target}) == ["compile", "net.onnx"]
    assert parse_target(target.removeprefix("--target=")) == SKYLAKE


@pytest.mark.parametrize(
    ("line", "folded"),
    [
        ("--target host net.onnx -o x.so", ["--target=host", "net.onnx", "-o", "x.so"]),
        ("--target llvm -o x.so", ["--target=llvm", "-o", "x.so"]),
        ("--target llvm -mcpu=a -q -v", ["--target=llvm -mcpu=a", "-q", "-v"]),
        ("--target llvm -mcpu=a --json", ["--target=llvm -mcpu=a", "--json"]),
        ("--target llvm -mcup=a", ["--target=llvm -mcup=a"]),
        ("--target", ["--target"]),
        ("--target --json", ["--target", "--json"]),
        ("--target=host --target llvm -mcpu=a", ["--target=host", "--target=llvm -mcpu=a"]),
        ("-- --target llvm -mcpu=a", ["--", "--target", "llvm", "-mcpu=a"]),
        ("-mcpu=a", ["-mcpu=a"]),
        ("--target llvm '-mattr=+a b'", ["--target=llvm '-mattr=+a b'"]),
    ],
)
def test_takes_only_what_belongs_to_the_target(line, folded):
    assert fold_target(shlex.split(line)) == folded
