"""Run the example on two nodes of this machine, and kill a worker or a whole node.

`python ray_scene.py worker|node MODEL PICTURES FOLDER` writes for `test_ray_batch.py` into FOLDER:
`log`, a line for each batch; `killed`, a process; and `scores`, the example's output.
"""

import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path

import neocpu.batch
from neocpu.batch import Predictor

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_batch" / "score.py"


def watched(log):
    """Return a slow predictor that logs its process and its node."""

    class Watched(Predictor):
        def __call__(self, batch):
            import ray

            time.sleep(0.5)
            found = super().__call__(batch)
            node = ray.get_runtime_context().get_node_id()
            with open(log, "a") as file:
                file.write(f"{os.getpid()} {node} {len(found['y'])}\n")
            return found

    return Watched


def worker_on(node, log):
    """Return a process of one or any node once it has scored a batch and begun the next."""
    while True:
        for line in log.read_text().splitlines():
            process, place, _ = line.split()
            if node in (None, place):
                time.sleep(0.2)
                return int(process)
        time.sleep(0.01)


def kill(victim, cluster, node, folder):
    """Kill a worker, or everything on a node, in the middle of a batch."""
    process = worker_on(node.node_id if victim == "node" else None, folder / "log")
    if victim == "worker":
        os.kill(process, signal.SIGKILL)
    else:
        cluster.remove_node(node, allow_graceful=False)
    (folder / "killed").write_text(str(process))


def main():
    import ray
    import ray.data
    from ray.cluster_utils import Cluster

    victim, model, pictures, folder = sys.argv[1:]
    log = Path(folder) / "log"
    log.touch()
    # The memory that blocks might take; almost none of it is used.
    node = {"num_cpus": 2, "object_store_memory": 512 << 20, "include_log_monitor": False}
    sparing = {"enable_worker_prestart": False}
    head = {"include_dashboard": False, "no_monitor": True, "_system_config": sparing}
    cluster = Cluster(True, head_node_args={**node, **head})
    try:
        second = cluster.add_node(**node)
        os.environ["RAY_ADDRESS"] = cluster.address
        neocpu.batch.Predictor = watched(str(log))
        killer = threading.Thread(
            target=kill, args=(victim, cluster, second, Path(folder)), daemon=True
        )
        killer.start()
        sys.argv = [str(EXAMPLE), model, pictures, f"{folder}/scores"]
        try:
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
        killer.join(30)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
