"""The page of a network of hundreds of operators, whose graph is nowhere a single tensor."""

from types import SimpleNamespace
from typing import Any

import browser

from neocpu.plan.pages.page import page_text

COUNT = 700
OP = {
    **{
        "name": "a",
        "kind": "conv2d",
        "workload": "1x8x8x8 -> 8, 3x3",
        "flops": 9216,
        "scheme": None,
    },
    **{"in_layout": "NCHW8c", "out_layout": "NCHW8c", "precision": "fp32"},
    **{"cost_us": 1.0, "cost_source": "estimated"},
}
NODE = {
    **{"name": "a", "kind": "conv2d", "kernel": "a", "op": 0, "transform": None, "times": 1},
    **{"weights": 10, "others": 10, "predicted_us": 1.0, "makes": []},
}
DATA: dict[str, Any] = {
    "name": "large",
    "facts": [],
    "plan": {
        **{"ops": [OP], "transforms": [], "predicted_us": float(COUNT), "threads": 2},
        "weights": {"packed_bytes": 10 * COUNT},
        "search": {
            **{"solver": "exact", "cost_us": 1.0, "lower_bound_us": 1.0, "gap": 0.0},
            **{"verdict": "proven optimal", "seconds": 0.5, "variables": 3},
        },
    },
    "nodes": [NODE] * COUNT,
    # Each operator reads the two before it, and every hundredth reads a much earlier one.
    "edges": [
        [source, i, []]
        for i in range(1, COUNT)
        for source in {i - 1, max(0, i - 2), *([i - 90] if i % 100 == 99 else [])}
    ],
    "arena": {"bytes": 0, "blocks": []},
    **{"profile": None, "loops": {}, "trace": None, "install": "", "words": {}, "templates": {}},
}
PLACES = """
[...document.querySelectorAll('#graph .node')].map(
  (box) => box.getAttribute('transform').match(/[-\\d.]+/g).map(Number))
"""
WIDTH, HEIGHT = 240, 50


@browser.NEEDED
def test_all_of_it_is_arranged(tmp_path):
    path = tmp_path / "large.html"
    path.write_text(page_text(SimpleNamespace(name="large", to_json=lambda: DATA)))
    with browser.browser() as page:
        page.open(path)
        assert page.complaints == []
        places = sorted(page.value(PLACES), key=lambda place: place[1])
        assert len(places) == COUNT
        near = (
            (place, other)
            for i, place in enumerate(places)
            for other in places[i + 1 : i + 40]
            if other[1] < place[1] + HEIGHT
        )
        assert all(abs(place[0] - other[0]) >= WIDTH for place, other in near)
        assert page.value("document.querySelectorAll('#graph .edge').length") == len(DATA["edges"])
