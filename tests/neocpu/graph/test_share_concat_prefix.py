"""Growing concatenations continue each other."""

import tvm
from relax_modules import assert_same_results, assert_unchanged, module
from tvm import relax

from neocpu.graph.redundancy.concatenations import share_concat_prefix

R = relax.op
SHAPE = (2, 3, 4, 4)


def concat(bb, *inputs, axis=1):
    return bb.emit(R.concat(list(inputs), axis))


def test_a_dense_block_chains_its_concats():
    def before(bb, a, b, c, d):
        ab = concat(bb, a, b)
        abc = concat(bb, a, b, c)
        return ab, abc, concat(bb, a, b, c, d)

    def expected(bb, a, b, c, d):
        ab = concat(bb, a, b)
        abc = concat(bb, ab, c)
        return ab, abc, concat(bb, abc, d)

    shapes = [SHAPE] * 4
    after = share_concat_prefix(module(before, *shapes))
    tvm.ir.assert_structural_equal(after, module(expected, *shapes))
    assert_same_results(module(before, *shapes), after)


def test_the_longest_prefix_is_found_through_nested_concats():
    def before(bb, a, b, c, d):
        ab = concat(bb, a, b)
        abc = concat(bb, ab, c)
        return ab, abc, concat(bb, a, b, c, d, a)

    def expected(bb, a, b, c, d):
        ab = concat(bb, a, b)
        abc = concat(bb, ab, c)
        return ab, abc, concat(bb, abc, d, a)

    shapes = [SHAPE] * 4
    after = share_concat_prefix(module(before, *shapes))
    tvm.ir.assert_structural_equal(after, module(expected, *shapes))


def test_an_equal_concat_is_reused():
    def before(bb, a, b, c):
        abc = concat(bb, concat(bb, a, b), c)
        return bb.emit(R.add(abc, concat(bb, a, b, c)))

    def expected(bb, a, b, c):
        abc = concat(bb, concat(bb, a, b), c)
        return bb.emit(R.add(abc, abc))

    shapes = [SHAPE] * 3
    after = share_concat_prefix(module(before, *shapes))
    tvm.ir.assert_structural_equal(after, module(expected, *shapes))


def test_other_axes_orders_and_suffixes_stay():
    def body(bb, a, b, c):
        return (
            concat(bb, a, b),
            concat(bb, a, b, c, axis=2),
            concat(bb, b, a, c),
            concat(bb, c, a, b),
        )

    assert_unchanged(share_concat_prefix, module(body, *[SHAPE] * 3))


def test_a_value_concatenated_with_itself_again_and_again_is_looked_at_once():
    def body(bb, a):
        for _ in range(40):
            a = concat(bb, a, a)
        return a

    assert_unchanged(share_concat_prefix, module(body, (1, 1)))
