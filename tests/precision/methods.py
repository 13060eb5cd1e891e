"""Print the scores of EfficientNet-Lite by each method of quantising, as ONNX defines it.

    python -m tests.precision.methods DOWNLOADS [0 1]

It needs the same packages as `tests.precision`, and scores the same views.
"""

from __future__ import annotations

import sys
from pathlib import Path

import neocpu
from tests.precision.__main__ import in_onnxruntime, scoring

WAYS = {
    "the defaults: `percentile`, per channel, biases corrected by weights, sums of 4": {},
    "`--method minmax`": {"method": "minmax"},
    "`--method moving-average`": {"method": "moving-average"},
    "`--method mse`": {"method": "mse"},
    "`--method kl`": {"method": "kl"},
    "`--method symmetric-kl`": {"method": "symmetric-kl"},
    "`--method js`": {"method": "js"},
    "`--method auto`": {"method": "auto"},
    "`--symmetric`": {"symmetric": True},
    "`--int16-sums 0`": {"int16_sums": 0},
    "`--int16-sums 2`": {"int16_sums": 2},
    "`--int16-sums 8`": {"int16_sums": 8},
    "`--correct-bias none`": {"correction": "none"},
    "`--correct-bias mean-variance`": {"correction": "mean-variance"},
    "`--correct-bias activations`": {"correction": "activations"},
    "`--per layer`": {"per_channel": False},
    "`--per layer --equalise`": {"per_channel": False, "equalise": True},
    "`--per layer --correct-bias none`": {"per_channel": False, "correction": "none"},
    "`--per layer --equalise --correct-bias none`": {
        "per_channel": False,
        "equalise": True,
        "correction": "none",
    },
}


def main(downloads: Path, which: int) -> None:
    with scoring(downloads, which) as (model, calibration, views, scored):
        print("| way | agreement | top-1 | dB |\n|---|---|---|---|")
        path = model.with_name("quantised.onnx")
        for way, options in WAYS.items():
            neocpu.quantize(model, calibration, neocpu.QuantiseOptions(**options)).save(path)
            found = in_onnxruntime(path, views.images, optimised=False)
            print(f"| {way} | {' | '.join(scored.figures(found))} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for number in sys.argv[2:] or ("0", "1"):
        main(Path(sys.argv[1]), int(number))
