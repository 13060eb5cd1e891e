"""The features of LLVM's CPUs, compared with those that hosts must have to run code."""

from dataclasses import replace

import needs
import pytest
import tvm
import tvm.target.codegen as llvm
from conv_workloads import conv_workload
from kernel_harness import compile_for
from tvm import te

from neocpu.foundation.errors import TargetError
from neocpu.foundation.instruction_sets import KNOWN_FEATURES
from neocpu.schedules import registry
from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.vocabulary import llvm_features
from neocpu.schedules.vocabulary.llvm_features import BY_NAME, demanded
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.target import TRIPLES
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp


def described(machine):
    """Return LLVM's features of each of its 64-bit CPUs."""

    def of(**more):
        return tvm.target.Target({"kind": "llvm", "mtriple": TRIPLES[machine], **more})

    every = {
        str(cpu): {str(name) for name in llvm.llvm_get_cpu_features(of(mcpu=str(cpu)))}
        for cpu in llvm.llvm_get_cpu_archlist(of())
    }
    return {cpu: names for cpu, names in every.items() if machine != "x86_64" or "64bit" in names}


@pytest.fixture(scope="module", params=sorted(TRIPLES))
def machine(request):
    return request.param


def test_hosts_are_asked_for_all_that_code_may_depend_on(machine):
    """A new feature of LLVM fails here until it has a CPU bit or is listed as harmless."""
    for cpu, names in described(machine).items():
        found = demanded(machine, names)
        assert set(found) <= KNOWN_FEATURES, cpu
        assert parse_target(f"llvm -mtriple={TRIPLES[machine]} -mcpu={cpu}").demands == found


def test_only_features_of_llvm_are_listed_as_harmless(machine):
    every = set().union(*described(machine).values())
    assert every >= llvm_features._HARMLESS[machine]


def test_an_unknown_feature_is_demanded_of_hosts(machine):
    assert demanded(machine, ["avx4096", "sse2", "fp-armv8"])[0] == "avx4096"
    assert "avx4096" not in KNOWN_FEATURES


@pytest.mark.parametrize("cpu", ["i386", "pentium4", "yonah"])
def test_cpus_of_32_bits_are_refused_before_llvm_ends_the_process(cpu):
    with pytest.raises(TargetError, match=f"-mcpu={cpu} is a 32-bit CPU"):
        parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")


def kernels(target):
    """Return functions with typical operations of kernels: floats, integers, tables, bits."""
    epilogue = (EpilogueOp("bias_add"), EpilogueOp("relu"))
    numerics = [
        Numerics(data="float32", weights="float32", sum="float32", output="float32"),
        Numerics(data="uint8", weights="int8", sum="int32", output="int32"),
    ]
    for each in numerics:
        steps = epilogue if each.output == "float32" else ()
        workload = conv_workload(1, 32, 9, 9, 32, (3, 3), numerics=each, epilogue=steps)
        schemes = registry.schemes(workload, target) if target.find_dot_unit(each) else ()
        for scheme in {type(one): one for one in schemes}.values():
            yield registry.lower(workload, scheme, target, 2)
    yield from (gathered(dtype, target) for dtype in ("float32", "int32", "uint8", "float64"))


def gathered(dtype, target):
    """Return a function that looks up, compares and shifts."""
    x, places = (te.placeholder((7, 33), kind, name="x") for kind in (dtype, "int32"))

    def value(i, j):
        at = te.max(te.min(places[i, j], 32), 0)
        found = te.exp(x[i, j]) if dtype.startswith("float") else x[i, j] ^ (x[i, j] >> 3)
        return te.if_then_else(places[i, j] > 3, found * x[i, at], x[i, at])

    y = te.compute((7, 33), value, name="y")
    return schedule_function(te.create_prim_func([x, places, y]), target)


NEWEST = [
    *(("x86_64", cpu) for cpu in ("diamondrapids", "novalake", "clearwaterforest", "znver5")),
    *(("x86_64", cpu) for cpu in ("sapphirerapids", "tigerlake", "bdver4", "goldmont")),
    *(("aarch64", cpu) for cpu in ("olympus", "apple-m5", "c1-ultra", "fujitsu-monaka")),
    *(("aarch64", cpu) for cpu in ("ampere1c", "neoverse-v1", "cortex-a72")),
]


@pytest.mark.slow
@needs.one_in(4)
@pytest.mark.parametrize(("machine", "cpu"), NEWEST)
def test_code_does_not_depend_on_features_that_targets_do_not_name(machine, cpu):
    """LLVM generates the same code if all of these features are off."""
    target = parse_target(f"llvm -mtriple={TRIPLES[machine]} -mcpu={cpu}")
    names = described(machine)[cpu]
    off = names & BY_NAME[machine]
    if "sha3" in names:  # to LLVM it contains this
        off -= {"sha2"}
    without = replace(target, mattr=tuple(sorted(f"-{name}" for name in off)))
    left = {str(name) for name in llvm.llvm_get_cpu_features(without.to_tvm())}
    assert off
    assert not off & left
    assert set(target.demands) <= left
    functions = list(kernels(target))
    assert len(functions) > 4
    for function in functions:
        assert compile_for(function, without) == compile_for(function, target)
