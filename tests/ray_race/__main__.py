"""The rows that Ray Data's workers score in a second, by the number of workers.

``python -m tests.ray_race [NETWORK] [--workers 1,2] [--batches 1,4,16] [--rows N] [--rounds N]``
compiles a built-in network for one thread and a set of batches, and scores arrays in Ray's memory.
Each worker has one CPU; numbers of workers take turns, and the program prints medians. A round ends
when every row is scored.

Throughput grows more slowly than the number of workers for three reasons. Ray needs a twentieth of
two CPUs to pass rows around, so the last CPU of a machine adds less than the others. The first rows
wait for the second worker to start, so small sets of rows scale worse. Workers that compute one row
at a time (``--batches 1``) all read the weights for every row, and compete for memory.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import neocpu
import neocpu.batch
from neocpu.frontend.models import build

BATCH = 16
"""The rows of a worker's call."""


def pictures(batch: dict[str, Any], shape: list[int]) -> dict[str, Any]:
    """Return rows with an array for each."""
    random = np.random.default_rng(int(batch["id"][0]))
    return {**batch, "row": random.random((len(batch["id"]), *shape), dtype=np.float32)}


class Timed(neocpu.batch.Predictor):
    """A predictor that reports when it scored each batch, without its start."""

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return a batch's columns, and when scoring began and ended."""
        start = time.time()
        found = super().__call__(batch)
        times = {"start": start, "end": time.time()}
        return {**found, **{name: np.full(len(batch["id"]), at) for name, at in times.items()}}


def seconds(rows: Any, workers: int, settings: dict[str, Any]) -> float:
    """Return how long rows take, from the first that is scored to the last."""
    import ray

    scored = rows.map_batches(
        Timed,
        fn_constructor_kwargs=settings,
        batch_size=BATCH,
        num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=workers),
    )
    table = scored.select_columns(["id", "start", "end"]).to_pandas()
    if sorted(table["id"]) != list(range(rows.count())):
        raise SystemExit("rows were lost or scored twice")
    return float(table["end"].max() - table["start"].min())


def main() -> None:
    """Print a table."""
    import ray

    parser = argparse.ArgumentParser(prog="python -m tests.ray_race")
    parser.add_argument("network", nargs="?", default="resnet50")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    counts = [int(count) for count in asked.workers.split(",")]
    batches = [int(batch) for batch in asked.batches.split(",")]
    model = build(asked.network)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        shapes = [{model.graph.input[0].name: (batch, *shape)} for batch in batches]
        with neocpu.compile(model, shapes=shapes, threads=1, verify=False) as made:
            made.export(path)
        ray.init(num_cpus=max(counts), include_dashboard=False, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        numbers = ray.data.range(asked.rows, override_num_blocks=-(-asked.rows // BATCH))
        rows = numbers.map_batches(pictures, fn_args=(shape,), batch_size=BATCH).materialize()
        settings = {"path": str(path), "columns": {model.graph.input[0].name: "row"}}
        times: dict[int, list[float]] = {count: [] for count in counts}
        for _ in range(asked.rounds):
            for count in counts:
                times[count].append(seconds(rows, count, settings))
        print("| workers | rows a second | times as many |\n| ---: | ---: | ---: |")
        one = statistics.median(times[counts[0]])
        for count in counts:
            each = statistics.median(times[count])
            print(f"| {count} | {asked.rows / each:.1f} | {one / each:.2f} |")


if __name__ == "__main__":
    main()
