"""Results have the model's output names, whether there is one output or several."""

import numpy as np
import pytest
from onnx.helper import make_node as node

from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.simplify import simplify
from neocpu.ir.model_names import renamed_by
from neocpu.ir.uses import bindings
from tests.neocpu.frontend.differential import make_model

X = np.zeros((2, 3), np.float32)
CASES = {
    "one output": ([node("Exp", ["x"], ["m"]), node("Neg", ["m"], ["y"])], ["y"]),
    "a dot": ([node("Exp", ["x"], ["m"]), node("Neg", ["m"], ["y.1"])], ["y.1"]),
    "a number of TVM's": ([node("Exp", ["x"], ["gv"]), node("Neg", ["gv"], ["gv1x"])], ["gv1x"]),
    "a step that reads it": (
        [node("Exp", ["x"], ["y"]), node("Neg", ["y"], ["m"]), node("Abs", ["m"], ["z"])],
        ["y"],
    ),
    "several": ([node("Exp", ["x"], ["m"]), node("Neg", ["m"], ["y"])], ["m", "y"]),
}


@pytest.mark.parametrize("case", CASES)
def test_results_are_named(case):
    nodes, outputs = CASES[case]
    mod = simplify(import_relax(load_model(make_model(nodes, {"x": X}, outputs=outputs))))
    main, known = mod["main"], renamed_by(mod["main"])
    names = [known.get(str(each.var.name), str(each.var.name)) for each in bindings(main)]
    assert [name for name in names if name in outputs] == outputs
    assert len(set(names)) == len(names)
