"""Ten built-in networks with planted faults, reduced to the few nodes that cause them.

``python -m tests.reductions [NETWORK…]`` prints the number of nodes that `neocpu reduce` leaves,
and its time. The faults are an unknown operator, one whose kernel cannot be generated, one that
computes wrong results, and one that a command finds by a node and its input.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time

import onnx
from onnx import helper
from tvm import te, tirx

import neocpu
from neocpu import CustomOperator
from neocpu.cli.array_files.arrays import write_archive
from neocpu.foundation.console.terminal import print_table
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.shapes.static_shapes import real_inputs, tensor_spec
from neocpu.verification.reduction.checks import parse_check
from neocpu.verification.reduction.reduce_model import reduce_model
from neocpu.verification.reduction.static_model import static_model
from neocpu.verification.reduction.whole_graph import WholeGraph

DOMAIN = "planted"
#: Networks, their faults, and the share of nodes before the fault.
PLANTED = (
    ("squeezenet1_0", "Wrong", 0.3),
    ("resnet18", "Unknown", 0.95),
    ("mobilenet_v1", "Unbuildable", 0.05),
    ("mobilenet_v2", "Wrong", 0.9),
    ("shufflenet_v2_x1_0", "Wrong", 0.5),
    ("resnet50", "command", 0.7),
    ("densenet121", "Unknown", 0.6),
    ("inception_v3", "Unbuildable", 0.4),
    ("efficientnet_b0", "Wrong", 0.15),
    ("yolov3_tiny", "command", 0.5),
)
CHECK = {"Wrong": "differs", "Unknown": "does-not-compile", "Unbuildable": "does-not-compile"}
_COMMAND = """
import sys, onnx
graph = onnx.load(sys.argv[1]).graph
makers = {name: node for node in graph.node for name in node.output}
there = makers.get(sys.argv[2])
sys.exit(0 if there is None or not set(there.input) & set(makers) else 7)
"""


def wrong(inputs, attributes):
    (x,) = inputs
    return te.compute(x.shape, lambda *at: tirx.if_then_else(x(*at) > 0.5, -x(*at), x(*at)))


def unbuildable(inputs, attributes):
    raise ValueError("this kernel cannot be made")


def plant(model: onnx.ModelProto, kind: str, share: float) -> str:
    """Put a node between another and its readers; return the value that it reads."""
    graph = model.graph
    read = [name for node in graph.node for name in node.input]
    at = round(share * (len(graph.node) - 1))
    at = next(i for i in range(at, -1, -1) if graph.node[i].output[0] in read)
    value = graph.node[at].output[0]
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name == value:
                node.input[place] = "planted"
    graph.node.insert(at + 1, helper.make_node(kind, [value], ["planted"], domain=DOMAIN))
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return value


def reduce_one(name: str, kind: str, share: float) -> tuple[str, ...]:
    """Return a row of the table."""
    model = static_model(name, {})
    if kind == "command":
        nodes = model.graph.node
        value = nodes[round(share * (len(nodes) - 1))].output[0]
        words = (sys.executable, "-c", _COMMAND, "{model}", value)
        text = " ".join(word if word == "{model}" else shlex.quote(word) for word in words)
    else:
        plant(model, kind, share)
        text = CHECK[kind]
    inputs = random_inputs([tensor_spec(v) for v in real_inputs(model.graph)], seed=0)
    start = time.monotonic()
    whole = WholeGraph.of(model, inputs)
    found = reduce_model(whole, parse_check(text, write_archive), name, budget=300)
    seconds = time.monotonic() - start
    return (
        *(name, kind, str(found.nodes), ", ".join(found.case.operators)),
        *(str(found.checks), f"{seconds:.0f} s"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.reductions")
    parser.add_argument("networks", nargs="*")
    asked = parser.parse_args().networks
    for operator, compute in (("Wrong", wrong), ("Unbuildable", unbuildable)):
        neocpu.register_operator(CustomOperator(DOMAIN, operator, compute, lambda x, _: x[0]))
    rows = []
    for each in PLANTED:
        if not asked or each[0] in asked:
            rows.append(reduce_one(*each))
            print(*rows[-1], sep="  ", file=sys.stderr)
    header = ("network", "planted", "nodes", "of which fail", "checks", "time")
    print_table(header, rows, right=("nodes", "checks", "time"))


if __name__ == "__main__":
    main()
