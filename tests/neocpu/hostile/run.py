"""The cases, and a program that compiles and runs them, so that only a child can crash."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np

import neocpu
from tests.neocpu.hostile import arithmetic, lookups, sampling
from tests.neocpu.hostile.hostile_case import Case

CASES: Mapping[str, Callable[[], Case]] = {
    "ScatterElements": lookups.scatter_elements,
    "ScatterElements-int32": lambda: lookups.scatter_elements("int32"),
    "ScatterND": lookups.scatter_nd,
    "large scatters": lookups.large_scatters,
    "gathers": lookups.gathers,
    "gathers-int32": lambda: lookups.gathers("int32"),
    "overflowing indices": lookups.overflowing_indices,
    **{
        f"arithmetic-{kind}": lambda kind=kind: arithmetic.arithmetic(kind)
        for kind in ("int8", "int32", "int64", "uint8", "uint64")
    },
    "remainders": arithmetic.remainders,
    "mixed powers": arithmetic.mixed_powers,
    "casts": arithmetic.casts,
    "OneHot": lookups.one_hot,
    "MaxUnpool": lookups.max_unpool,
    "Trilu": sampling.trilu,
    "ArgMax": sampling.arg_extrema,
    "TopK": sampling.top_k,
    "NonMaxSuppression": sampling.suppression,
    "GridSample": sampling.grid_sample,
    "GridSample-volume": lambda: sampling.grid_sample_anywhere(
        [(3, "linear", "zeros"), (3, "nearest", "border")]
    ),
    "GridSample-reflected": lambda: sampling.grid_sample_anywhere([(2, "nearest", "reflection")]),
    "RoiAlign": lambda: sampling.roi_align(1.0, 0),
    "RoiAlign-scaled": lambda: sampling.roi_align(0.25, 0),
    "RoiAlign-samples": lambda: sampling.roi_align(1.0, 2),
    "RoiAlign-samples-scaled": lambda: sampling.roi_align(0.25, 2),
    "MaxRoiPool": lambda: sampling.max_roi_pool(1.0),
    "MaxRoiPool-scaled": lambda: sampling.max_roi_pool(0.25),
    "EmbedLayerNormalization": lookups.embedding,
    "quantization": arithmetic.quantization,
    "floats": arithmetic.floats,
    "other integers-int32": lambda: arithmetic.other_integers("int32"),
    "other integers-int64": lambda: arithmetic.other_integers("int64"),
}

#: Cases that repeat earlier ones, or take LLVM long.
SLOW_CASES: Mapping[str, Callable[[], Case]] = {
    **{
        f"arithmetic-{kind}": lambda kind=kind: arithmetic.arithmetic(kind)
        for kind in ("int16", "uint32")
    },
    "GridSample-reflected further": lambda: sampling.grid_sample_anywhere(
        [(2, "linear", "reflection"), (2, "cubic", "reflection")]
    ),
}


def run(name: str) -> None:
    """Compile a case and run all its draws; raise an error if a result is not as documented."""
    case = {**CASES, **SLOW_CASES}[name]()
    model = case.model()
    with neocpu.compile(model, threads=2, verify=False) as compiled:
        with compiled.module(2) as module:
            for draw in range(case.draws):
                feeds = case.feeds(np.random.default_rng(draw))
                given = {key: value.copy() for key, value in feeds.items()}
                found = module.run(feeds)
                for key, value in given.items():
                    np.testing.assert_array_equal(feeds[key], value, f"{name}: input {key}")
                with np.errstate(all="ignore"):
                    expected = case.expected(model, feeds)
                for key, value in expected.items():
                    where = f"{name}: output {key} of draw {draw}"
                    # numpy widens sums
                    value = np.asarray(value).astype(found[key].dtype)
                    np.testing.assert_allclose(
                        found[key], value, rtol=case.rtol, atol=case.rtol, err_msg=where
                    )


def main(names: Sequence[str]) -> None:
    """Run cases by name; the last name printed is that of the one that crashed."""
    failures = []
    for name in names:
        print(name, flush=True)
        try:
            run(name)
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
    print("\n".join(failures), file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
