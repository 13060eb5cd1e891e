"""A loop that only loses by more threads has fewer tasks, in the table of an artifact's kernels."""

import neocpu
from neocpu.bench.scaling.loop_times import kernel_loops
from neocpu.frontend.models.network_builder import NetworkBuilder


def _loops(folder, threads):
    """Return the parallel loops of a short kernel, planned for so many threads of a Zen 4."""
    net = NetworkBuilder("short", (1, 32, 16, 16), seed=0)
    model = net.finish(net.relu(net.input, "r"))
    path = folder / f"{threads}.so"
    with neocpu.compile(
        model, target="llvm -mcpu=znver4", threads=threads, verify=False
    ) as compiled:
        compiled.export(path)
    ((loops),) = kernel_loops(path).values()
    return loops


def test_a_short_loop_has_fewer_tasks_for_many_threads_only(tmp_path):
    (few,) = _loops(tmp_path, 2)
    (many,) = _loops(tmp_path, 64)
    assert few >= 16
    assert 1 <= many < 16
