"""Random models of branches and loops in each other, over values of one shape."""

from __future__ import annotations

import numpy as np
import onnx

from tests.neocpu.frontend.control_flow.control_flow_models import parsed

SHAPE = (2, 3)
FLAGS = ("p", "q")
_KIND = "float[2,3]"


class _Generator:
    """Draws graphs as texts; ``count`` numbers their values."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self, options):
        return options[int(self.random.integers(len(options)))]

    def nodes(self, values: list[str], flags: list[str], depth: int) -> list[str]:
        """Return nodes that read ``values``; their results are added to these."""
        made = []
        for _ in range(int(self.random.integers(1, 4))):
            kinds = [self.call, self.call, self.condition]
            kinds += [self.branch, self.branch, self.loop, self.scan] if depth else []
            made += self.pick(kinds)(values, flags, depth)
        return made

    def call(self, values, flags, depth):
        result = self.name()
        op = self.pick(("Add", "Sub", "Mul", "Max"))
        node = f"{result} = {op}({self.pick(values)}, {self.pick(values)})"
        values.append(self.name())
        return [node, f"{values[-1]} = Tanh({result})"]

    def condition(self, values, flags, depth):
        total, result = self.name(), self.name()
        flags.append(result)
        summed = f"{total} = ReduceSum<keepdims = 0>({self.pick(values)})"
        return [summed, f"{result} = Less({total}, zero)"]

    def body(self, values, flags, depth, inputs, results, again=None, rows=0):
        """Return a graph of ``results`` values and ``rows``, perhaps with a loop condition."""
        inner, own = [*values], [*flags]
        nodes = self.nodes(inner, own, depth - 1)
        outputs = [self.pick(inner) for _ in range(results + rows)]
        renamed = [self.name() for _ in outputs]
        nodes += [f"{b} = Identity({a})" for a, b in zip(outputs, renamed, strict=True)]
        made = [f"{_KIND} {name}" for name in renamed]
        if again is not None:
            name = self.name()
            nodes.append(f"{name} = Identity({again or self.pick([*own, *FLAGS])})")
            made.insert(0, f"bool {name}")
        weight = ", ".join(map(str, np.float32(self.random.normal(size=SHAPE)).ravel()))
        head = f"body ({', '.join(inputs)}) => ({', '.join(made)})"
        return f"{head} <{_KIND} {self.name()} = {{{weight}}}> {{ {' '.join(nodes)} }}"

    def branch(self, values, flags, depth):
        count = int(self.random.integers(1, 3))
        pair = [self.body(values, flags, depth, [], count) for _ in range(2)]
        outputs = [self.name() for _ in range(count)]
        values += outputs
        bodies = f"<then_branch = {pair[0]}, else_branch = {pair[1]}>"
        return [f"{', '.join(outputs)} = If({self.pick([*flags, *FLAGS, 'yes'])}) {bodies}"]

    def loop(self, values, flags, depth):
        states = [self.pick(values) for _ in range(int(self.random.integers(1, 3)))]
        number, going, *inner = [self.name() for _ in range(2 + len(states))]
        inputs = [f"int64 {number}", f"bool {going}", *(f"{_KIND} {name}" for name in inner)]
        decided = self.random.random() < 0.5
        again, rows = "" if decided else going, 0 if decided else 1
        body = self.body([*values, *inner], flags, depth, inputs, len(states), again, rows)
        outputs = [self.name() for _ in states]
        stacked = [self.name() for _ in range(rows)]
        values += outputs
        count = self.pick(["one", "three"])
        first = self.pick([*FLAGS, "yes"]) if decided else self.pick(["", "yes"])
        given = ", ".join([count, first, *states])
        loop = f"{', '.join(outputs + stacked)} = Loop({given}) <body = {body}>"
        return [loop, *self.summed(stacked, 0, values)]

    def scan(self, values, flags, depth):
        axis, backward = int(self.random.integers(-3, 3)), int(self.random.integers(2))
        pair = [self.pick(values), self.pick(values)]
        long, slices = self.name(), [self.name() for _ in pair]
        nodes = [
            f"{new} = Unsqueeze({value}, axis{axis % 3})"
            for value, new in zip(pair, slices, strict=True)
        ]
        nodes.append(f"{long} = Concat<axis = {axis}>({', '.join(slices)})")
        names = [self.name() for _ in range(2)]
        inputs = [f"{_KIND} {name}" for name in names]
        body = self.body([*values, *names], flags, depth, inputs, 1, rows=1)
        state, rows = self.name(), self.name()
        values.append(state)
        out = int(self.random.integers(-3, 3))
        nodes.append(f"""{state}, {rows} = Scan({self.pick(values[:-1])}, {long}) <
            num_scan_inputs = 1, scan_input_axes = [{axis}], scan_input_directions = [{backward}],
            scan_output_axes = [{out}], scan_output_directions = [{1 - backward}],
            body = {body}>""")
        return [*nodes, *self.summed([rows], out % 3, values)]

    def summed(self, rows, axis, values):
        """Return nodes that make one value of rows and depend on their order."""
        nodes = []
        for name in rows:
            weighted, total = self.name(), self.name()
            nodes.append(f"{weighted} = CumSum({name}, place{axis})")
            nodes.append(f"{total} = ReduceMean<keepdims = 0>({weighted}, axis{axis})")
            values.append(total)
        return nodes


def random_model(seed: int, depth: int = 3) -> onnx.ModelProto:
    """Return a model of an input ``x`` and the flags, and of three outputs."""
    generator = _Generator(seed)
    values, flags = ["x"], []
    nodes = generator.nodes(values, flags, depth)
    for _ in range(2):
        nodes += generator.branch(values, flags, depth)
    outputs = [*dict.fromkeys(reversed(values))][:3]
    nodes += [f"y{i} = Identity({a})" for i, a in enumerate(outputs)]
    made = ", ".join(f"{_KIND} y{i}" for i in range(len(outputs)))
    places = ", ".join(
        f"int64[1] axis{axis} = {{{axis}}}, int64 place{axis} = {{{axis}}}" for axis in range(3)
    )
    return parsed(
        f"g ({_KIND} x, bool p, bool q) => ({made}) <float zero = {{0}}, int64 one = {{1}}, "
        f"int64 three = {{3}}, bool yes = {{1}}, {places}> {{ {' '.join(nodes)} }}",
        opset=18,
    )
