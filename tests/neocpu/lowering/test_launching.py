"""Independent calls are launched jointly, and do not share memory."""

import itertools
import zlib

import pytest
from concatenations import SHAPE, concat, exp, lowered, twice
from networks import HOST
from tvm import relax

from neocpu.building.pipeline import call_kernels
from neocpu.building.program import program_of
from neocpu.foundation.machine.machines import MACHINES
from neocpu.lowering.memory import launching
from neocpu.lowering.memory.launching import launch_jointly
from neocpu.lowering.memory.plan_memory import plan_memory
from neocpu.schedules.estimates.parallel_run import Piece

MACHINE = MACHINES["znver4"]


def branches(net, x):
    """Two branches, one of them longer, in the order of the branches."""
    y = exp(net, x)
    one = net.emit(relax.op.nn.max_pool2d(y, (3, 3), padding=(1, 1)))
    two = net.emit(relax.op.nn.avg_pool2d(y, (3, 3), padding=(1, 1)))
    two = net.emit(relax.op.nn.max_pool2d(two, (3, 3), padding=(1, 1)))
    return concat(net, one, two)


def pairs(net, x):
    """Two calls that read different tensors, which nothing reads later."""
    one, two = exp(net, x), net.emit(relax.op.nn.max_pool2d(x, (3, 3), padding=(1, 1)))
    one = net.emit(relax.op.nn.max_pool2d(one, (3, 3), padding=(1, 1)))
    two = net.emit(relax.op.nn.avg_pool2d(two, (3, 3), padding=(1, 1)))
    return net.emit(relax.op.multiply(one, two))


def launched(body, piece, threads=16, most=None):
    mod = call_kernels(lowered(body, SHAPE)[1])
    before = plan_memory(mod, HOST, {})
    most = before.arena_bytes if most is None else most
    found = launch_jointly(mod, {}, piece, MACHINE, threads, most)
    after = None if found is None else plan_memory(found.mod, HOST, {}, (), found.launches)
    return before, after


@pytest.mark.parametrize("body", [branches, twice, pairs])
def test_calls_of_one_launch_write_where_no_other_reads_or_writes(body, monkeypatch):
    monkeypatch.setattr(launching, "GROWTH", 2.0)
    before, after = launched(body, lambda _: Piece(1, 1e-4))
    assert after.launches
    assert after.arena_bytes <= launching.GROWTH * before.arena_bytes
    new = program_of(after, {})
    assert len(new.calls) == len(program_of(before, {}).calls)
    params = len(after.mod["main"].params) - len(after.activations)
    places = {params + i: place for i, place in enumerate(after.activations)}
    for first, count in after.launches:
        for (_, one), (_, other) in itertools.permutations(new.calls[first : first + count], 2):
            written = places[one[-1]]
            for tensor in other:
                if tensor in places:
                    apart = places[tensor]
                    assert written.end <= apart.offset or apart.end <= written.offset


def test_no_calls_are_launched_jointly_for_which_the_arena_would_grow_too_much():
    before, _ = launched(branches, lambda _: Piece(1, 1e-4))
    assert launched(branches, lambda _: Piece(1, 1e-4), most=before.arena_bytes // 2)[1] is None


def test_branches_become_neighbours():
    before, after = launched(branches, lambda _: Piece(1, 1e-4))
    names = [[name for name, _ in program_of(each, {}).calls] for each in (before, after)]
    assert sorted(names[0]) == sorted(names[1])
    ((first, count),) = after.launches
    assert (first, count) == (1, 2)


@pytest.mark.parametrize(
    ("piece", "threads"),
    [
        (lambda _: None, 16),  # no call may be launched with others
        (lambda _: Piece(64, 1e-3), 16),  # each has work for all
        (lambda _: Piece(1, 1e-7), 64),  # nothing to speak of
    ],
)
def test_calls_stay_in_order_where_common_launches_do_not_pay(piece, threads):
    assert launched(branches, piece, threads)[1] is None


def test_equal_kernels_keep_their_order():
    """The plan identifies its operators by this order."""

    def body(net, x):
        y = net.emit(relax.op.nn.max_pool2d(exp(net, x), (3, 3), padding=(1, 1)))
        return concat(net, y, net.emit(relax.op.nn.max_pool2d(x, (3, 3), padding=(1, 1))))

    before, after = launched(body, lambda name: Piece(1, 1e-4 + zlib.crc32(name.encode()) * 1e-15))
    kernels = [name for name, _ in program_of(before, {}).calls]
    pool = next(name for name in kernels if kernels.count(name) == 2)
    order = []
    for placed in (before, after or before):
        program = program_of(placed, {})
        inputs = [tensors[0] for name, tensors in program.calls if name == pool]
        order.append([number == 0 for number in inputs])
    assert order[0] == order[1] == [False, True]
