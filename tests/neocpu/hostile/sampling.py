"""Operators that rank, or that sample images at places that data gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import helper

from neocpu.verification.reference.runner import run_reference
from tests.neocpu.hostile.hostile_case import (
    DATA,
    NORMAL,
    REALS,
    USUAL,
    Case,
    integers,
    named,
    nothing_expected,
)


def trilu() -> Case:
    variants = [("Trilu", ("x", "k"), {"upper": upper}) for upper in (0, 1)]
    inputs = {"x": ("float32", (2, 5, 4), DATA), "k": ("int64", (), integers("int64", 4))}

    def expected(model, feeds):
        k = int(np.clip(feeds["k"], -9, 9))  # beyond, onnx's evaluator raises
        return {"y0": np.tril(feeds["x"], k), "y1": np.triu(feeds["x"], k)}

    return Case(named("y", variants), inputs, expected=expected)


def arg_extrema() -> Case:
    forms = [(op, last) for op in ("ArgMax", "ArgMin") for last in (0, 1)]
    variants = [
        (op, ("x",), {"axis": 1, "keepdims": 0, "select_last_index": last}) for op, last in forms
    ]
    variants.append(("Hardmax", ("x",), {"axis": 1}))
    nothing = np.array([np.nan, np.inf, -np.inf])

    def expected(model, feeds):
        results = {}
        for number, (op, last) in enumerate(forms):
            key = feeds["x"] * (1 if op == "ArgMax" else -1)
            key = np.where(np.isnan(key), np.inf, key)
            found = 3 - key[:, ::-1].argmax(1) if last else key.argmax(1)
            results[f"y{number}"] = found
        hot = np.arange(4)[:, None] == results["y0"][:, None]
        return {**results, "y4": hot.astype(np.float32)}

    values = np.concatenate([NORMAL, *[nothing] * 30])
    return Case(named("y", variants), {"x": ("float32", (300, 4, 3), values)}, expected=expected)


def top_k() -> Case:
    nodes = [
        helper.make_node("TopK", ["x", "k"], [f"v{largest}", f"i{largest}"], largest=largest)
        for largest in (0, 1)
    ]
    finite = REALS[~np.isnan(REALS)]
    # Without equal elements, whose order onnx's evaluator leaves open.
    values = np.unique(np.concatenate([finite[np.abs(finite) > 1e-30], DATA]).astype(np.float32))

    def expected(model, feeds):
        order = {0: np.argsort(feeds["x"], -1, "stable"), 1: np.argsort(-feeds["x"], -1, "stable")}
        found = {f"i{k}": places[..., :7] for k, places in order.items()}
        values = {f"v{k}": np.take_along_axis(feeds["x"], found[f"i{k}"], -1) for k in order}
        return {**found, **values}

    return Case(nodes, {"x": ("float32", (6, 40), values)}, {"k": np.array([7])}, expected)


def suppression() -> Case:
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "score"], ["y0"]),
        helper.make_node(
            "NonMaxSuppression", ["boxes", "scores", "most", "iou"], ["y1"], center_point_box=1
        ),
    ]
    return Case(
        nodes,
        {"boxes": ("float32", (2, 30, 4), REALS), "scores": ("float32", (2, 3, 30), REALS)},
        {
            "most": np.array([8]),
            "iou": np.array([0.5], np.float32),
            "score": np.array([0.1], np.float32),
        },
    )


def onnxruntime_of(
    prepare: Mapping[str, Callable[[np.ndarray], np.ndarray]],
) -> Callable[..., Mapping[str, np.ndarray]]:
    """Expect ONNX Runtime's results for inputs that are prepared as documented."""

    def expected(model, feeds):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        prepared = {name: prepare.get(name, lambda x: x)(x) for name, x in feeds.items()}
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(None, prepared), strict=True))

    return expected


def numbers(x: np.ndarray, otherwise: float, limit: np.ndarray | float) -> np.ndarray:
    clean = np.where(np.isnan(x), np.float32(otherwise), x)
    return np.clip(clean, -np.float32(limit), np.float32(limit)).astype(np.float32)


def grid_sample() -> Case:
    variants = [
        ("GridSample", ("x", "grid"), {"mode": mode, "padding_mode": pad, "align_corners": align})
        for mode in ("linear", "nearest", "cubic")
        for pad in ("zeros", "border")
        for align in (0, 1)
    ]
    return Case(
        named("y", variants),
        {
            "x": ("float32", (2, 3, 6, 5), DATA),
            "grid": ("float32", (2, 4, 7, 2), np.concatenate([REALS, USUAL, [1.4, -1.3]])),
        },
        expected=onnxruntime_of({"grid": lambda x: numbers(x, -1, 1e4)}),
        rtol=1e-3,
    )


def grid_sample_anywhere(forms: Sequence[tuple[int, str, str]]) -> Case:
    """Samples of ``(dimensions, mode, padding mode)``.

    A coordinate that is reflected from far away has no digits left; its result is not compared.
    """
    variants = [
        ("GridSample", (f"x{rank}", f"grid{rank}"), {"mode": mode, "padding_mode": padding})
        for rank, mode, padding in forms
    ]
    inputs = {}
    for rank in sorted({rank for rank, *_ in forms}):
        spatial = (3, 6, 5)[-rank:], (4, 7, 2)[-rank:]
        inputs[f"x{rank}"] = ("float32", (2, 3, *spatial[0]), DATA)
        inputs[f"grid{rank}"] = ("float32", (2, *spatial[1], rank), REALS)
    reflected = any(padding == "reflection" for *_, padding in forms)
    expected = nothing_expected if reflected else run_reference
    return Case(named("y", variants), inputs, expected=expected, rtol=1e-4)


HEIGHT, WIDTH = 12, 9


def corners(x: np.ndarray, scale: float, margin: int = 2) -> np.ndarray:
    extents = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT], np.float32) / np.float32(scale)
    clean = np.where(np.isnan(x), np.float32(0), x)
    beyond = np.maximum(margin * extents, 64 / scale)
    return np.clip(clean, -beyond, extents + beyond).astype(np.float32)


def roi_align(scale: float, ratio: int) -> Case:
    variants = [
        (
            "RoiAlign",
            ("x", "rois", "images"),
            {
                "output_height": 3,
                "output_width": 2,
                "sampling_ratio": ratio,
                "spatial_scale": scale,
                "coordinate_transformation_mode": mode,
            },
        )
        for mode in ("half_pixel", "output_half_pixel")
    ]
    places = np.concatenate([REALS, np.linspace(-2, 14, 40), [1e4, -1e4]])

    def expected(model, feeds):
        # onnx's evaluator, because ONNX Runtime refuses boxes that end before they start
        images = np.clip(np.where(feeds["images"] < 0, feeds["images"] + 2, feeds["images"]), 0, 1)
        rois = corners(feeds["rois"], scale, 1 << 20 if ratio else 2)
        return run_reference(model, {**feeds, "rois": rois, "images": images})

    return Case(
        named("y", variants),
        {
            "x": ("float32", (2, 3, HEIGHT, WIDTH), DATA),
            "rois": ("float32", (16, 4), places),
            "images": ("int64", (16,), integers("int64", 2)),
        },
        expected=expected,
        rtol=1e-3,
        draws=3,
    )


def max_roi_pool(scale: float) -> Case:
    attributes = {"pooled_shape": [3, 2], "spatial_scale": scale}
    places = np.concatenate([REALS, np.linspace(-2, 14, 40), [1e4, -1e4]])

    def regions(x):
        images = np.clip(np.where(np.isnan(x[:, :1]), 0, x[:, :1]), 0, 1)
        images = np.trunc(images)
        return np.concatenate([images, corners(x[:, 1:], scale)], 1).astype(np.float32)

    return Case(
        named("y", [("MaxRoiPool", ("x", "rois"), attributes)]),
        {"x": ("float32", (2, 3, HEIGHT, WIDTH), DATA), "rois": ("float32", (20, 5), places)},
        expected=onnxruntime_of({"rois": regions}),
        rtol=1e-3,
    )
