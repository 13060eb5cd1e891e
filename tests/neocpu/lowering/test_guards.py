"""Skipped calls do not change any result that is read."""

import random

import pytest

from neocpu.lowering.memory.joins import Guard, Step, guards_of


def random_program(seed):
    """Return steps over numbered tensors, the first three as inputs, and the tensors to keep."""
    draw = random.Random(seed)
    tensors, bools, steps = [0, 1, 2], [0, 1, 2], []
    for made in range(3, 3 + draw.randint(1, 14)):
        if draw.random() < 0.5:
            # Often the previous tensors, so that there are chains.
            sides = [draw.choice(tensors[-4:]) for _ in range(2)]
            steps.append(Step((draw.choice(bools), *sides), (made,), True))
        else:
            read = tuple(draw.choice(tensors[-5:]) for _ in range(draw.randint(1, 2)))
            steps.append(Step(read, (made,)))
        tensors.append(made)
        bools.append(made)
    return steps, [tensors[-1], draw.choice(tensors)]


def value(step, values):
    """Return a step's result as a bool; fail if it reads a tensor that no step made."""
    if step.selects:
        return values[step.reads[1 if values[step.reads[0]] else 2]]
    return sum(values[tensor] << i for i, tensor in enumerate(step.reads)) % 3 == 0


def run(steps, given, guards):
    values, skipped = dict(enumerate(given)), 0
    for step, needed in zip(steps, guards, strict=True):
        # A condition that was not computed is not read, because an earlier one failed.
        if all(values[guard.condition] == guard.value for guard in needed):
            values[step.writes[0]] = value(step, values)
        else:
            skipped += 1
    return values, skipped


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_guards_do_not_change_kept_results(first):
    total = 0
    for seed in range(first, first + 500):
        steps, kept = random_program(seed)
        guards = guards_of(steps, kept)
        for number in range(8):
            given = [bool(number >> bit & 1) for bit in range(3)]
            all_made, _ = run(steps, given, [()] * len(steps))
            values, skipped = run(steps, given, guards)
            assert [values[tensor] for tensor in kept] == [all_made[tensor] for tensor in kept]
            total += skipped
    assert total > 1000


def test_each_side_of_a_branch_is_computed_only_if_taken():
    steps = [Step(("x",), ("a",)), Step(("a",), ("b",)), Step(("x",), ("e",))]
    steps += [Step(("c", "b", "e"), ("y",), True)]
    then, other = (Guard("c", True),), (Guard("c", False),)
    assert guards_of(steps, ["y"]) == [then, then, other, ()]
    assert guards_of(steps, ["y", "b"]) == [(), (), other, ()]


def test_a_condition_that_comes_later_guards_nothing():
    steps = [Step(("x",), ("a",)), Step(("x",), ("c",)), Step(("x",), ("b",))]
    steps += [Step(("c", "a", "b"), ("y",), True)]
    assert guards_of(steps, ["y"]) == [(), (), (Guard("c", False),), ()]


def test_outer_conditions_come_first():
    steps = [Step(("x",), ("d",)), Step(("x",), ("a",)), Step(("d", "a", "x"), ("b",), True)]
    steps += [Step(("c", "x", "b"), ("y",), True)]
    outer, inner = Guard("c", False), Guard("d", True)
    assert guards_of(steps, ["y"]) == [(outer,), (outer, inner), (outer,), ()]
