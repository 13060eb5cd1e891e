"""The pipelines' model, on loops whose limits follow from the Cortex-A72's manual."""

import needs
import pytest

from neocpu.bench.instructions.throughput_model import model
from neocpu.foundation.errors import NeoCPUError

pytestmark = needs.programs("llvm-mca")

COUNTER = ("subs x0, x0, #1", "b.ne #-64")


def share(*body):
    found = model((*body, *COUNTER), "cortex-a72")
    assert found.instructions == len(body) + 2
    return found.multiply_adds / found.cycles


def test_independent_multiply_adds_reach_the_bound_of_one_a_cycle():
    assert share(*(f"fmla v{i}.4s, v30.4s, v31.s[{i % 4}]" for i in range(16))) > 0.98


def test_a_chain_of_them_waits_for_each():
    assert share(*("fmla v0.4s, v30.4s, v31.4s" for _ in range(16))) < 0.5


def test_more_loads_than_multiply_adds_are_the_limit():
    products = [f"fmla v{i}.4s, v30.4s, v31.4s" for i in range(8)]
    loads = [f"ldr q{i}, [x1, #{16 * i}]" for i in range(8, 24)]
    assert share(*products, *loads) == pytest.approx(0.5, rel=0.05)


def test_an_instruction_that_llvm_does_not_know_is_an_error():
    with pytest.raises(NeoCPUError, match="llvm-mca failed"):
        model(("frobnicate x0",), "cortex-a72")
