"""Score a folder of pictures into Parquet, on every machine of a Ray cluster.

python score.py MODEL.so PICTURES SCORES [--workers N] [--streams N]
"""

from __future__ import annotations

import argparse
import os
import sys

import ray

import neocpu
import neocpu.batch
from neocpu.foundation.errors import NeoCPUError


def place(path: str) -> str:
    """Return a folder's absolute path, because workers run elsewhere, or a bucket's address."""
    return path if "://" in path else os.path.abspath(path)


def count_workers(asked: int | None, streams: int, cpus: int) -> int:
    """Return the number of workers to start on a cluster with ``cpus`` CPUs.

    The default is two, or fewer if these would take all CPUs: reading and writing need one, and Ray
    would wait for it forever.
    """
    most = max(1, (cpus - 1) // streams)
    workers = min(2, most) if asked is None else asked
    if workers * streams >= cpus:
        print(
            f"score.py: --workers {workers} of --streams {streams} leave none of the cluster's "
            f"{cpus} CPUs for reading and writing: nothing is scored until it has more",
            file=sys.stderr,
        )
    return workers


def main() -> int:
    """Read, score, write; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", help="compiled with `neocpu compile --input NAME=u8:…`")
    parser.add_argument("pictures", help="a folder or bucket that every machine reads")
    parser.add_argument("scores", help="the folder or bucket to write Parquet files into")
    parser.add_argument("--workers", type=int, help="2, or what leaves a CPU for reading")
    parser.add_argument("--streams", type=int, default=1, help="calls at once in each worker")
    asked = parser.parse_args()
    # Each worker uses the CPUs that Ray gives it, and no others.
    settings = {"path": os.path.abspath(asked.model), "streams": asked.streams, "errors": "error"}
    try:
        with neocpu.load(asked.model) as module:  # reports errors in the model here
            settings["columns"] = {module.inputs[0].name: "bytes"}
    except NeoCPUError as error:
        print(f"score.py: {error}", file=sys.stderr)
        return error.exit_code
    ray.init()  # joins this machine's cluster, or starts one on it alone
    cpus = int(ray.cluster_resources().get("CPU", 0))
    workers = count_workers(asked.workers, asked.streams, cpus)
    (
        ray.data.read_binary_files(place(asked.pictures), include_paths=True)
        .map_batches(
            neocpu.batch.Predictor,
            fn_constructor_kwargs=settings,
            batch_size=64,
            num_cpus=asked.streams,
            compute=ray.data.ActorPoolStrategy(size=workers),
        )
        .write_parquet(place(asked.scores))
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
