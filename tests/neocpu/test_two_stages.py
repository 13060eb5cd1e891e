"""A detector of two stages, compiled and verified, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime

import neocpu
from neocpu.frontend.rows.divided_rows import FEWEST
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.header_parts import Repeat
from tests.neocpu.two_stage import MOST, OUTPUTS, PROPOSALS, SIDE, two_stages


def test_detections_agree_with_onnxruntime():
    model = two_stages()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    with neocpu.compile(model, threads=1) as compiled, compiled.module() as module:
        assert compiled.verification is not None
        assert compiled.verification.ok
        shapes = {spec.name: spec.shape[0] for spec in module.outputs if spec.bounded}
        assert shapes == dict.fromkeys(OUTPUTS[:4], MOST) | {"proposals": PROPOSALS}
        counts = set()
        for seed in range(7):
            image = np.random.default_rng(seed).standard_normal((1, 3, SIDE, SIDE))
            feeds = {"image": (seed * image / 3).astype(np.float32)}
            expected = session.run(list(OUTPUTS), feeds)
            for (name, mine), want in zip(module.run(feeds).items(), expected, strict=True):
                assert mine.shape == want.shape, name
                np.testing.assert_allclose(mine, want, rtol=1e-4, atol=1e-4, err_msg=name)
            counts.add((len(expected[0]), len(expected[4])))
        masks = [each for each in compiled.header.repeats if _convolves(compiled.header, each)]
        assert len(masks) == -(-MOST // FEWEST)
        assert all(each.limit == 1 and each.count is not None for each in masks)
    assert counts >= {(0, 0), (MOST, PROPOSALS)}
    assert len(counts) > 2


def _convolves(header: ArtifactHeader, repeat: Repeat) -> bool:
    calls = header.calls[repeat.first : repeat.end]
    return any(kernel.startswith("conv2d") for kernel, *_ in calls)
