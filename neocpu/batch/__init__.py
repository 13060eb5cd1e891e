"""Data sets of any size, scored by a compiled model on a cluster: `Predictor` for Ray Data.

    ds.map_batches(
        neocpu.batch.Predictor,
        fn_constructor_kwargs={"path": "model.so", "columns": {"image": "bytes"}},
        concurrency=8,
    )

Nothing here imports Ray, which makes a `Predictor` in each of its workers and calls it on batches:
mappings from columns to arrays. Whatever else has such batches can do the same.
"""

from __future__ import annotations

from neocpu.batch.predictor import Predictor

__all__ = ["Predictor"]
