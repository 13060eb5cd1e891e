from neocpu.schedules.estimates.register_tile import broadcast_limit, step_cycles, unrolled_limit
from neocpu.schedules.vocabulary.numerics import FLOAT32
from neocpu.schedules.vocabulary.target_parsing import parse_target

AVX512 = parse_target("llvm -mcpu=skylake-avx512")
AVX2 = parse_target("llvm -mcpu=znver3")
WIDE_UNIT, UNIT = AVX512.dot_unit(FLOAT32), AVX2.dot_unit(FLOAT32)
L1, L2, BEYOND = AVX2.l1d // 4, AVX2.l2 // 2, 2 * AVX2.l2


def test_sums_vectors_and_a_broadcast_fit_the_registers():
    for target in (AVX512, AVX2):
        for vectors in (1, 2, 4):
            limit = broadcast_limit(vectors, target.dot_unit(FLOAT32))
            assert vectors * limit + vectors + 1 <= target.vector_registers
            assert vectors * (limit + 1) + vectors + 1 > target.vector_registers


def test_a_single_vector_needs_two_registers_for_each_sum_without_broadcasting_multiply_adds():
    assert unrolled_limit(1, UNIT) == 7
    assert unrolled_limit(2, UNIT) == broadcast_limit(2, UNIT) == 6
    assert unrolled_limit(1, WIDE_UNIT) == broadcast_limit(1, WIDE_UNIT) == 30


def test_square_tiles_load_less_for_each_product():
    def cost(vectors, broadcasts):
        return step_cycles(vectors, broadcasts, UNIT, AVX2, L1) / (vectors * broadcasts)

    assert cost(2, 6) < cost(2, 4) < cost(1, 7)
    # Fewer than eight sums wait for each other.
    assert cost(2, 4) < cost(2, 3) < cost(1, 4)


def test_wide_vectors_wait_for_the_cache_they_come_from():
    wide = [step_cycles(4, 2, UNIT, AVX2, size) for size in (L1, L2, BEYOND)]
    assert wide == sorted(set(wide))
    # Six broadcasts for each vector give the cache more time.
    assert step_cycles(2, 6, UNIT, AVX2, L1) == step_cycles(2, 6, UNIT, AVX2, L2)
