"""Measure each graph rule's gain: networks with it and without it, in turns.

    python -m tests.zoo.rules [--suite all] [--kept FOLDER] [--only WORD] [--rounds N]
                              [-o rules.jsonl]

For each built-in network of the suite, and each export that ``python -m tests.zoo.race --kept
FOLDER`` left there, every rule that was applied is disabled in turn. Equal graphs without different
rules are compiled and measured once, and those equal to the full one not at all; a clear difference
takes fewer rounds. The machine has to be quiet. Results in the file are not measured again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
import tvm_ffi

import neocpu
from neocpu.building.deep_stack import on_deep_stack
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.read_model import load_for_import
from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.importer import import_relax
from neocpu.frontend.models import suite
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.graph.simplify import simplify
from neocpu.graph.table import RULES
from neocpu.runtime.module import Module
from tests.zoo.exports import keep, kept

LEAST = 0.99
"""The least ratio that equal programs may have in a measurement."""
FEWEST = 3
"""The rounds before which no difference is clear."""
PLAIN = 4
"""A difference counts if it is this many times the spread of its rounds."""


@dataclass(frozen=True, slots=True)
class Gain:
    """The gain of one network by one rule.

    - `applied`: the number of times that the rule was applied.
    - `ratio`: the latency without the rule divided by that with it; 1 where both are the same
      program.
    """

    network: str
    rule: str
    applied: int
    ratio: float


def gains(network: str, model: str | Path, rounds: int) -> Iterator[Gain]:
    """Yield the gain of each rule that is applied to a network."""
    applied, graphs = on_deep_stack(graphs_without, model)
    with _compiled(model) as whole, whole.module() as module:
        ratios = {graphs[""]: 1.0}
        for rule, count in applied.items():
            try:
                if graphs[rule] not in ratios:
                    with _compiled(model, [rule]) as other, other.module() as without:
                        same = _program(other) == _program(whole)
                        ratio = 1.0 if same else in_turns(without, module, rounds)
                    ratios[graphs[rule]] = ratio
            except NeoCPUError as error:  # changes that only this rule makes possible
                print(f"{network} without {rule}: {error}", flush=True)
                continue
            yield Gain(network, rule, count, ratios[graphs[rule]])


def graphs_without(model: str | Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return how often rules are applied to a model, and a hash of the graph without each.

    Only rules that can be disabled count. The hash ignores the numbers in weights, which change no
    kernel's time. The entry "" is the graph with all rules.
    """

    def identity(mod: tvm.IRModule) -> int:
        return tvm_ffi.structural_hash(mod["main"], map_free_vars=True, skip_tensor_content=True)

    imported, fired = import_relax(load_for_import(model, NO_SHAPES)), Counter[str]()
    graphs = {"": identity(simplify(imported, fired=fired))}
    optional = {rule.name for rule in RULES if not rule.required}
    applied = {rule: count for rule, count in fired.items() if rule in optional}
    for rule in applied:
        graphs[rule] = identity(simplify(imported, [rule]))
    return applied, graphs


def _compiled(model: str | Path, without: Sequence[str] = ()) -> CompiledModule:
    return neocpu.compile(model, disable_rules=without, verify=False)


def _program(compiled: CompiledModule) -> tuple[object, object]:
    return compiled.header.calls, compiled.header.plan.ops


def in_turns(first: Module, second: Module, rounds: int) -> float:
    """Return the ratio of two modules' latencies, the median of some rounds.

    Fewer rounds are enough if the difference is clear.
    """
    inputs = random_inputs(first.inputs, seed=0)
    for module in (first, second):
        for _ in range(3):
            module.run(inputs)
    ratios: list[float] = []
    while len(ratios) < rounds and not is_plain(ratios):
        pair = (first, second) if len(ratios) % 2 else (second, first)
        took = {id(module): _seconds(module, inputs) for module in pair}
        ratios.append(took[id(first)] / took[id(second)])
    return statistics.median(ratios)


def is_plain(ratios: Sequence[float]) -> bool:
    """Whether ratios differ from 1 by several times as much as from each other."""
    if len(ratios) < FEWEST:
        return False
    return abs(statistics.median(ratios) - 1) > PLAIN * (max(ratios) - min(ratios))


def _seconds(module: Module, inputs: dict[str, object]) -> float:
    """Return the median of a few calls, without the first, which finds cold caches."""
    took = []
    for _ in range(4):
        start = time.perf_counter()
        module.run(inputs)
        took.append(time.perf_counter() - start)
    return statistics.median(took[1:])


def summary(found: Sequence[Gain]) -> list[str]:
    """Return a line for each rule's gain, and the networks that a rule makes slower."""
    by_rule = defaultdict(list)
    for each in found:
        by_rule[each.rule].append(each)
    lines = []
    for rule, each in sorted(by_rule.items()):
        ratios = [gain.ratio for gain in each]
        mean = statistics.geometric_mean(ratios)
        best = max(each, key=lambda gain: gain.ratio)
        lines.append(
            f"{rule}: {len(each)} networks, geometric mean {mean:.3f}, "
            f"least {min(ratios):.3f}, most {best.ratio:.2f} ({best.network})"
        )
    slower = [each for each in found if each.ratio < LEAST]
    lines += [f"slower: {each.network} with {each.rule}: {each.ratio:.3f}" for each in slower]
    return [*lines, f"{len(found)} pairs, {len(slower)} below {LEAST}"]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.rules")
    parser.add_argument("--suite", default="all", help="of built-in networks; empty for none")
    parser.add_argument("--kept", type=Path, help="folder of exports")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/rules.jsonl"))
    options = parser.parse_args()
    found = kept(options.output, Gain)
    done = {each.network for each in found}
    networks: dict[str, str | Path] = {}
    if options.suite:
        networks = {name: name for name in suite(options.suite)}
    if options.kept:
        networks |= {path.stem: path for path in sorted(options.kept.glob("*.onnx"))}
    for name, model in networks.items():
        if options.only not in name or name in done:
            continue
        try:
            for gain in list(gains(name, model, options.rounds)):  # all of them, or none are kept
                found.append(gain)
                keep(options.output, gain)
        except NeoCPUError as error:
            print(f"{name}: {error}", flush=True)
        print(f"{name}: done", flush=True)
    print("\n".join(summary(found)))


if __name__ == "__main__":
    main()
