"""Modules and pools that come and go, many times in one process."""

import gc

import numpy as np

import neocpu
from tests.neocpu.soak.flat import check_flat


def test_loads_and_closes(linear, soak):
    inputs = linear.inputs()
    with neocpu.load(linear.path, 2) as module:
        expected = module(inputs)

    def work(number):
        with neocpu.load(linear.path, 1 + number % 2) as module:
            np.testing.assert_array_equal(module(inputs), expected)

    soak(check_flat(work, soak.count(100, 1000)))


def test_pools(soak):
    def work(number):
        neocpu.ThreadPool(1 + number % 8).close()

    soak(check_flat(work, soak.count(100, 1000)))


def test_dropped_modules(linear, soak):
    def work(_):
        module = neocpu.load(linear.path, 2)
        module.itself = module
        module.warmup(1)
        del module
        gc.collect()

    soak(check_flat(work, soak.count(20, 1000), warmup=5))


def test_modules_side_by_side(two_way, soak):
    def work(_):
        modules = [neocpu.load(two_way.path, 2) for _ in range(4)]
        for module in modules:
            module(two_way.inputs())
            module.close()

    soak(check_flat(work, soak.count(20, 250)))
