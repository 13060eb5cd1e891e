"""Layout graphs for the solver tests: random ones, and the shapes of real networks."""

from __future__ import annotations

import itertools

import numpy as np

from neocpu.search.solver.layout_graph import LayoutEdge, LayoutGraph, LayoutNode

BLOCKS = (4, 8, 16, 32, 64)


def brute_force(graph: LayoutGraph) -> float:
    """Return the cost of the cheapest plan by trying all of them."""
    ranges = (range(len(node.choices)) for node in graph.nodes)
    return min((graph.cost(plan) for plan in itertools.product(*ranges)), default=0.0)


def random_graph(
    rng: np.random.Generator,
    nodes: int,
    density: float,
    max_choices: int = 4,
    forbidden: float = 0.0,
    integer: bool = False,
) -> LayoutGraph:
    """A random acyclic graph; ``forbidden`` is the share of infinite entries."""

    def costs(*shape: int):
        values = rng.integers(0, 4, shape).astype(float) if integer else rng.random(shape)
        return np.where(rng.random(shape) < forbidden, np.inf, values)

    sizes = rng.integers(1, max_choices + 1, nodes)
    made = tuple(
        LayoutNode(f"n{i}", tuple(f"c{j}" for j in range(k)), tuple(costs(k).tolist()))
        for i, k in enumerate(sizes)
    )
    edges = tuple(
        LayoutEdge(i, j, costs(sizes[i], sizes[j]))
        for i in range(nodes)
        for j in range(i + 1, nodes)
        if rng.random() < density
    )
    return LayoutGraph(made, edges)


def random_network(rng: np.random.Generator, operators: int) -> LayoutGraph:
    """A small network: chains, joins, diamonds, constants, dead ends, parallel edges and hubs.

    Every operator reads one to three earlier results, some of them twice. About half of the results
    with several readers have a hub, whose choices are sets of layouts.
    """
    layouts = tuple(range(int(rng.integers(1, 4))))
    sets = [set(s) for k in (1, 2) for s in itertools.combinations(layouts, k)]
    nodes: list[LayoutNode] = []
    edges: list[LayoutEdge] = []
    chosen: list[list[int]] = []  # the layout each choice of an operator is in
    readers: dict[int, list[int]] = {}

    def transforms(shape: tuple[int, int]) -> np.ndarray:
        forbidden = 0.2 if rng.random() < 0.3 else 0.0
        return np.where(rng.random(shape) < forbidden, np.inf, rng.integers(0, 5, shape))

    for index in range(operators):
        constant = rng.random() < 0.2
        options = [int(rng.choice(layouts))] if constant else sorted(layouts)
        costs = np.where(rng.random(len(options)) < 0.05, np.inf, rng.random(len(options)))
        nodes.append(LayoutNode(f"op{index}", tuple(map(str, options)), tuple(costs.tolist())))
        chosen.append(options)
        for source in rng.integers(0, index, int(rng.integers(1, 4))) if index else ():
            readers.setdefault(int(source), []).append(index)
    for source, reading in readers.items():
        if len(set(reading)) > 1 and rng.random() < 0.5:
            hub = len(nodes)
            nodes.append(LayoutNode(f"hub{source}", tuple(map(str, sets)), (0.0,) * len(sets)))
            edges.append(LayoutEdge(source, hub, transforms((len(chosen[source]), len(sets)))))
            for reader in reading:
                allowed = [[0.0 if c in made else np.inf for c in chosen[reader]] for made in sets]
                edges.append(LayoutEdge(hub, reader, np.array(allowed)))
        else:
            shapes = [(len(chosen[source]), len(chosen[reader])) for reader in reading]
            edges += [
                LayoutEdge(source, reader, transforms(shape))
                for reader, shape in zip(reading, shapes, strict=True)
            ]
    return LayoutGraph(tuple(nodes), tuple(edges))


class Builder:
    """Builds graphs of convolutions and joins with plausible costs (seconds)."""

    def __init__(self, seed: int, schemes: int = 20) -> None:
        self.rng = np.random.default_rng(seed)
        self.schemes = schemes
        self.nodes: list[LayoutNode] = []
        self.blocks: list[tuple[np.ndarray, np.ndarray]] = []
        self.edges: list[LayoutEdge] = []

    def conv(self, source: int | None) -> int:
        pairs = list(itertools.product(BLOCKS, BLOCKS))
        picked = self.rng.choice(len(pairs), min(self.schemes, len(pairs)), replace=False)
        ins, outs = np.array([pairs[i] for i in picked]).T
        base = self.rng.uniform(1e-4, 1e-3)
        costs = base * self.rng.uniform(1.0, 1.6, len(ins))
        names = tuple(f"{i}->{o}" for i, o in zip(ins, outs, strict=True))
        return self._add("conv", names, costs, ins, outs, () if source is None else (source,))

    def join(self, *sources: int) -> int:
        blocks = np.array(BLOCKS)
        costs = np.zeros(len(blocks))
        return self._add("join", tuple(map(str, blocks)), costs, blocks, blocks, sources)

    def dense(self, source: int) -> int:
        one = np.array([1])
        return self._add("dense", ("NCHW",), np.zeros(1), one, one, (source,))

    def graph(self) -> LayoutGraph:
        return LayoutGraph(tuple(self.nodes), tuple(self.edges))

    def _add(self, name, choices, costs, ins, outs, sources) -> int:
        index = len(self.nodes)
        self.nodes.append(LayoutNode(f"{name}{index}", choices, tuple(costs.tolist())))
        self.blocks.append((ins, outs))
        for source in sources:
            transform = self.rng.uniform(2e-5, 2e-4)
            differ = self.blocks[source][1][:, None] != ins[None, :]
            self.edges.append(LayoutEdge(source, index, differ * transform))
        return index


def resnet(depth: tuple[int, ...] = (3, 8, 36, 3), seed: int = 0) -> LayoutGraph:
    """ResNet-152 by default: bottlenecks with residual joins."""
    b = Builder(seed)
    x = b.conv(None)
    for blocks in depth:
        for block in range(blocks):
            y = b.conv(b.conv(b.conv(x)))
            x = b.join(y, b.conv(x) if block == 0 else x)
    b.dense(x)
    return b.graph()


def densenet(depth: tuple[int, ...] = (6, 12, 48, 32), seed: int = 0) -> LayoutGraph:
    """DenseNet-201 by default, its concatenations chained pairwise."""
    b = Builder(seed)
    x = b.conv(None)
    for layers in depth:
        for _ in range(layers):
            relu = b.join(x)
            x = b.join(x, b.conv(b.conv(relu)))
        x = b.conv(x)
    b.dense(x)
    return b.graph()


def densenet_flat(layers: int, seed: int = 0) -> LayoutGraph:
    """One dense block whose k-th concatenation reads all of outputs 0..k: of large treewidth."""
    b = Builder(seed, schemes=8)
    outputs = [b.conv(None)]
    for _ in range(layers):
        outputs.append(b.conv(b.join(*outputs)))
    b.dense(b.join(*outputs))
    return b.graph()


def inception(blocks: int = 11, seed: int = 0) -> LayoutGraph:
    """Inception-v3-like: four branches between concatenations."""
    b = Builder(seed)
    x = b.conv(b.conv(None))
    for _ in range(blocks):
        branches = (b.conv(x), b.conv(b.conv(x)), b.conv(b.conv(b.conv(x))), b.conv(b.join(x)))
        x = b.join(*branches)
    b.dense(x)
    return b.graph()


def ssd(seed: int = 0) -> LayoutGraph:
    """SSD-like: a residual trunk whose six scales feed two wide concatenations through heads."""
    b = Builder(seed)
    x = b.conv(None)
    locations, classes = [], []
    for _ in range(6):
        for _ in range(5):
            x = b.join(b.conv(b.conv(x)), x)
        locations.append(b.conv(x))
        classes.append(b.conv(x))
        x = b.conv(x)
    b.join(b.join(*locations), b.join(*classes))
    return b.graph()


def chain(length: int, seed: int = 0) -> LayoutGraph:
    """Convolutions in a row."""
    b = Builder(seed)
    x = b.conv(None)
    for _ in range(length - 1):
        x = b.conv(x)
    return b.graph()
