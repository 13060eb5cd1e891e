"""Score data sets of any size by a compiled model on a cluster: `Predictor` for Ray Data.

    ds.map_batches(
        neocpu.batch.Predictor,
        fn_constructor_kwargs={"path": "model.so", "columns": {"image": "bytes"}},
        concurrency=8,
    )

Nothing here imports Ray. Ray makes a `Predictor` in each of its workers and calls it on batches,
which are mappings from columns to arrays. Other frameworks with such batches can do the same.
"""

from __future__ import annotations

from neocpu.batch.predictor import Predictor

__all__ = ["Predictor"]
