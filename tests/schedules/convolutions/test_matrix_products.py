"""Kernels that multiply several pixels at once: where they apply, and plans that use them."""

import itertools
import random
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from conv_workloads import conv_workload

import neocpu
from neocpu.cli.main import main
from neocpu.foundation import instruction_sets
from neocpu.foundation.instruction_sets import TILES, tiles_permitted
from neocpu.frontend import models
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.schedules import registry
from neocpu.schedules.convolutions.matrix_products import conv2d_matrix
from neocpu.schedules.convolutions.matrix_products.joined_rows import JoinedRows
from neocpu.schedules.convolutions.matrix_products.joined_weights import (
    in_wide_groups,
    with_wide_groups,
)
from neocpu.schedules.convolutions.matrix_products.matrix_tiling import MatrixTiling
from neocpu.schedules.convolutions.matrix_products.split_tiling import SplitTiling
from neocpu.schedules.isa.catalogue import INSTRUCTIONS
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS, FLOAT32, Numerics
from neocpu.schedules.vocabulary.scheme import MatrixScheme, SplitScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.tuning_db.nearest import cpu_target
from neocpu.tuning_db.record import TargetKey

TILED = parse_target("llvm -mcpu=sapphirerapids")
PAIRED = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1")
INTEGERS = Numerics(data="uint8", weights="int8", sum="int32", output="uint8")
HALVES = Numerics(data="bfloat16", weights="bfloat16", sum="float32", output="bfloat16")
TYPES = {
    Numerics(data=each.data, weights=each.weights, sum=each.sum, output=each.sum)
    for each in INSTRUCTIONS
}


@pytest.mark.parametrize(
    "cpu", ["sapphirerapids", "graniterapids", "diamondrapids", "arrowlake", "znver4"]
)
def test_a_record_key_is_enough_to_know_a_cpus_units(cpu):
    target = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    known = cpu_target(TargetKey.of(target, 2))
    assert [target.units(each) for each in TYPES] == [known.units(each) for each in TYPES]


@pytest.mark.parametrize("missing", ["amx-tile", "amx-int8", "amx-bf16"])
def test_tiles_need_all_their_features(missing):
    target = parse_target(f"llvm -mcpu=sapphirerapids -mattr=-{missing}")
    assert not any(target.find_matrix_unit(each) for each in TYPES)
    assert TILED.find_matrix_unit(BFLOAT16_PRODUCTS).per_cycle == 1 / 16


def test_every_cpu_with_tiles_has_the_same_rate():
    switches = ",".join(f"+{name}" for name in sorted(TILES))
    target = parse_target(f"llvm -mcpu=x86-64-v4 -mattr={switches}")
    assert target.find_matrix_unit(INTEGERS).per_cycle == 1 / 16


matrix = partial(MatrixScheme, unroll_ker=False)
split = partial(SplitScheme, unroll_ker=False)


@pytest.mark.parametrize(
    ("target", "numerics", "scheme"),
    [
        (TILED, HALVES, matrix(32, 16, reg_n=16, reg_oc=32, dot=4)),  # the weights of bytes
        (TILED, HALVES, matrix(32, 16, reg_n=17, reg_oc=32, dot=2)),  # nine and eight rows
        (TILED, HALVES, matrix(48, 16, reg_n=16, reg_oc=32, dot=2)),  # a line and a half
        (TILED, HALVES, matrix(32, 16, reg_n=16, reg_oc=40, dot=2)),  # columns and a half
        (TILED, HALVES, matrix(32, 16, reg_n=32, reg_oc=64, dot=2)),  # more tiles than there are
        (PAIRED, HALVES, matrix(4, 4, reg_n=3, reg_oc=8, dot=4)),  # a pixel and a half
        (PAIRED, HALVES, matrix(4, 4, reg_n=4, reg_oc=8, dot=2)),
        (TILED, FLOAT32, split(48, 16, reg_n=16, reg_oc=32)),
        (TILED, FLOAT32, split(32, 16, reg_n=16, reg_oc=64)),
    ],
)
def test_records_of_impossible_kernels_are_refused(target, numerics, scheme):
    workload = conv_workload(1, 96, 20, 20, 80, (3, 3), padding=(1, 1, 1, 1), numerics=numerics)
    assert not registry.can_compute(workload, scheme, target)


def test_a_task_splits_no_more_than_its_cache_holds():
    workload = conv_workload(1, 512, 128, 128, 512, (3, 3), padding=(1, 1, 1, 1))
    found = [s for s in registry.schemes(workload, TILED) if isinstance(s, SplitScheme)]
    unit = TILED.find_matrix_unit(BFLOAT16_PRODUCTS)
    for threads, scheme in itertools.product((1, 2, 16), random.Random(0).sample(found, 3)):
        tiling = SplitTiling(workload, scheme, unit, TILED.l2, threads)
        assert tiling.copied_pixels * tiling.chunks * tiling.chunk_bytes <= TILED.l2


def tiled(workload, threads=2):
    """Return the tiling of the scheme with the best estimate."""
    scheme = conv2d_matrix.space(workload, TILED)[0]
    unit = TILED.find_matrix_unit(workload.numerics)
    return MatrixTiling(workload, scheme, unit, TILED.l2, threads)


def test_threads_share_what_has_more_bytes():
    pad = (1, 1, 1, 1)
    many = conv_workload(1, 512, 7, 7, 512, (3, 3), padding=pad, numerics=HALVES)
    few = conv_workload(1, 64, 56, 56, 64, (3, 3), padding=pad, numerics=HALVES)
    assert (tiled(many).strips, tiled(many).groups) == (1, 2)
    assert tiled(few).strips >= 2
    assert tiled(few).groups == 1
    # Few pixels share a block's weights, so that the next one's are fetched meanwhile.
    assert tiled(many).prefetched_lines
    shared = conv_workload(1, 64, 112, 112, 64, (3, 3), padding=pad, numerics=HALVES)
    assert not tiled(shared).prefetched_lines


@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "expected"),
    [
        (7, 3, 1, JoinedRows(pitch=9, below=2, phases=(1, 1))),
        (14, 3, 2, JoinedRows(pitch=8, below=1, phases=(2, 2))),
        (14, 1, 2, JoinedRows(pitch=7, below=0, phases=(1, 1))),
        (7, 1, 1, None),  # one row as it is
        (56, 3, 1, None),  # rows fill blocks
    ],
)
def test_short_rows_are_joined(extent, kernel, stride, expected):
    workload = conv_workload(
        1,
        64,
        extent,
        extent,
        64,
        (kernel, kernel),
        stride=(stride, stride),
        padding=(kernel // 2,) * 4,
        numerics=HALVES,
    )
    assert JoinedRows.if_fewer(workload) == expected
    assert tiled(workload).joined == expected


def test_groups_are_joined_to_lines_of_channels():
    narrow = conv_workload(1, 256, 14, 14, 256, (3, 3), groups=32, numerics=HALVES)
    assert in_wide_groups(narrow, 32).groups == 8
    assert in_wide_groups(replace(narrow, groups=2), 32).groups == 2
    assert {scheme.ic_bn for scheme in conv2d_matrix.space(narrow, TILED)} <= {16, 32, 64}
    alone = replace(narrow, groups=256)  # depthwise
    assert not conv2d_matrix.applies(alone, TILED)
    weights = np.arange(8 * 2 * 1 * 1, dtype=np.float32).reshape(8, 2, 1, 1) + 1
    few = conv_workload(1, 8, 5, 5, 8, (1, 1), groups=4, numerics=HALVES)
    wide = with_wide_groups(weights, few, in_wide_groups(few, 4))[:, :, 0, 0]
    assert wide.tolist()[:3] == [[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 6]]


def planned(net, precision, **options):
    """Return the templates of a plan for a CPU with tiles."""
    settings = {"threads": 2, "verify": False, "target": str(TILED), "precision": precision}
    with neocpu.compile(net, **settings, **options) as compiled:
        return {op.scheme.template for op in compiled.plan.ops if op.scheme}


def test_plans_choose_matrix_kernels():
    net = models.build("squeezenet1_0", image=(96, 96))
    assert "conv2d_matrix" in planned(net, "bf16")
    assert "conv2d_split" in planned(net, "fp32")
    assert not {"conv2d_split", "conv2d_winograd"} & planned(net, "fp32", accuracy="strict")


def test_strict_plans_have_kernels_for_prologues():
    net = NetworkBuilder("normalised", (1, 3, 56, 56), seed=0)
    first = net.conv(net.input, "first", 64, 3, padding=1)
    before = net.relu(net.batch_norm(first, "bn"), "relu")
    second = net.conv(before, "second", 64, 1)
    network = net.finish(net.classifier(net.add(first, second, "sum"), "fc", 10))
    assert "conv2d_split" in planned(network, "fp32")
    assert "conv2d_split" not in planned(network, "fp32", accuracy="strict")


def test_tiles_that_the_system_refuses_are_missing(monkeypatch):
    with_tiles = frozenset({"avx512f", *TILES})
    monkeypatch.setattr(instruction_sets, "_cpu_features", lambda: with_tiles)
    monkeypatch.setattr(instruction_sets, "tiles_permitted", lambda: True)
    assert instruction_sets.host_features() == with_tiles
    assert not instruction_sets.refused_features()
    monkeypatch.setattr(instruction_sets, "tiles_permitted", lambda: False)
    assert instruction_sets.host_features() == {"avx512f"}
    assert instruction_sets.refused_features() == TILES
    machine = instruction_sets.os.uname().machine
    why = instruction_sets.code_obstacle(machine, ("amx-tile",), frozenset({"avx512f"}))
    assert why == f"this host lacks amx-tile ({instruction_sets.TILES_REFUSED})"


def test_asking_twice_is_answered_twice():
    first = tiles_permitted()
    tiles_permitted.cache_clear()
    assert tiles_permitted() is first


def test_explain_names_split_products(tmp_path, capsys):
    path = tmp_path / "net.so"
    arguments = ("compile", "squeezenet1_0", "--target", str(TILED), "-o", str(path), "--no-verify")
    assert main([*arguments, "--threads", "2"]) == 0
    assert main(["explain", str(path)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"in tiles +\d+ layers of float32, by three products of bfloat16", said)
