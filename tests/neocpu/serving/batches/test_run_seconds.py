"""The runs of a busy server, and their seconds on all workers at once."""

import threading

import pytest

from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.serving.batches.batched_plans import BESIDE, run_seconds, worthwhile


@pytest.mark.parametrize(
    ("seconds", "rows"),
    [
        ({1: 1.0, 2: 1.5, 4: 2.0}, [1, 2, 4]),
        ({1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}, [1]),
        ({1: 1.0, 4: 3.9, 8: 7.7}, [1, 8]),
        ({8: 5.0, 4: 3.0, 1: 1.0}, [1, 4, 8]),
        ({1: 1.0, 4: 2.0, 8: 3.95}, [1, 4]),
        ({16: 1.0}, [16]),
    ],
)
def test_a_larger_run_has_to_be_worth_it(seconds, rows):
    assert worthwhile(seconds) == {size: seconds[size] for size in rows}


def test_runs_are_timed_on_all_workers_at_once():
    together = threading.Barrier(2, timeout=60)

    class Module:
        def __init__(self):
            self.sizes = []

        def run(self, inputs):
            self.sizes.append(len(inputs["x"]))
            together.wait()

    workers = [Module(), Module()]
    found = run_seconds(workers, [TensorSpec("x", "float32", (1, 3))], [1, 4])
    assert [*found] == [1, 4]
    assert min(found.values()) > BESIDE
    assert all({*worker.sizes} == {1, 4} for worker in workers)
