"""The hot loops of ResNet-50's and MobileNet-v2's convolutions by tiles and by pairs of pixels."""

import needs
import pytest

from tests.hot_loops.dot_loops import (
    RESNET_50,
    WORKLOADS,
    compiled,
    compiled_matrix,
    in_bfloat16,
    is_multiplied_in_blocks,
)

TILES, PAIRS = "sapphirerapids", "neoverse-v1"
#: Instructions for each product of tiles, itself among them.
MOST_PER_PRODUCT = 3.2
#: Of four products or fewer to a register tile, between which there is little else to share.
MOST_OF_FEW = 4.7
#: Instructions of pairs of pixels for a multiply-add, of those of a dot product.
PAIRS_SHARE = 0.65


def applying(cpu, workloads):
    """Yield those that such a CPU multiplies so, all or every fifth."""
    found = [workload for workload in workloads if is_multiplied_in_blocks(workload, cpu)]
    for number, workload in enumerate(found):
        yield pytest.param(workload, marks=() if number % 5 == 0 else needs.everything())


@pytest.mark.parametrize(
    "workload", list(applying(TILES, [*WORKLOADS, *map(in_bfloat16, WORKLOADS)])), ids=str
)
def test_hot_loops_of_tiles_have_only_products_and_their_loads(workload):
    _, loop = compiled_matrix(workload, TILES)
    assert not any("mm" in line for line in loop.spills)  # pointers, at most
    limit = MOST_PER_PRODUCT if loop.dots > 4 else MOST_OF_FEW
    assert loop.per_product <= limit + 0.05, loop.body


@pytest.mark.parametrize("workload", list(applying(PAIRS, RESNET_50[1:])), ids=str)
def test_hot_loops_of_pairs_have_fewer_instructions_than_dot_products(workload):
    _, loop = compiled_matrix(workload, PAIRS)
    assert not loop.spills
    # A row of seven pixels, and scattered columns that are not copied, leave more to do.
    few = workload.out_width == 7 or (workload.kernel == (1, 1) and workload.stride != (1, 1))
    _, other = compiled(workload, PAIRS)
    assert loop.per_product / 2 <= (0.85 if few else PAIRS_SHARE) * other.per_product
