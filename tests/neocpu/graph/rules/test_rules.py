"""Rules have names, can be disabled, are counted, and are described by a page that is right."""

import re
from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner
from relax_modules import module, names
from tvm import relax

from neocpu.cli.compile import command
from neocpu.foundation.errors import UsageError
from neocpu.graph.simplify import simplify
from neocpu.graph.table import RULES, parse_disabled
from tests import needs
from tests.neocpu.graph.rules.rules_page import (
    NETWORKS,
    PAGE,
    effect,
    effects_on_page,
    networks_on_page,
    row,
    sizes,
)

R = relax.op


def test_rules_have_unique_names_and_descriptions():
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
        assert rule.summary.endswith(".")
        assert "\n" not in rule.summary


def body(bb, x):
    y = bb.emit(R.add(bb.emit(R.abs(x)), relax.const(np.zeros((3,), "float32"))))
    return bb.emit(R.exp(bb.emit(R.reshape(bb.emit(R.reshape(y, (6,))), (3, 2)))))


def test_long_chains_of_operators_are_simplified_in_time():
    """Rules search chains of doubled values and of a thousand sums."""

    def doubled(bb, x):
        y = x
        for _ in range(60):
            y = bb.emit(R.add(y, y))
        gate = bb.emit(R.multiply(bb.emit(R.sigmoid(y)), bb.emit(R.tanh(y))))
        return bb.emit(R.add(bb.emit(R.multiply(gate, y)), gate))

    def summed(bb, x):
        y = bb.emit(R.exp(x))
        for number in range(350):
            y = bb.emit(R.add(y, relax.const(np.float32(number))))
        return bb.emit(R.divide(x, y))

    assert names(simplify(module(doubled, (2, 3))))[-1] == "add"
    assert names(simplify(module(summed, (2, 3)))) == ["exp", "add", "divide"]


def test_rules_are_counted():
    fired = Counter()
    assert names(simplify(module(body, (2, 3)), fired=fired)) == ["abs", "reshape", "exp"]
    assert fired == {"neutral-operands": 1, "merge-reshapes": 1}


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        ("neutral-operands", ["abs", "add", "reshape", "exp"]),
        ("merge-reshapes", ["abs", "reshape", "reshape", "exp"]),
    ],
)
def test_a_rule_that_is_disabled_is_not_applied(without, expected):
    fired = Counter()
    assert names(simplify(module(body, (2, 3)), {without}, fired)) == expected
    assert without not in fired


def test_the_command_line_lists_all_rules():
    listed = CliRunner().invoke(command, ["--list-rules"])
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.output.splitlines()][1:] == [r.name for r in RULES]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fold-scales", "there is no rule 'fold-scales'; did you mean 'fold-scale'?"),
        ("no-such-thing", "there is no rule 'no-such-thing'; see neocpu compile --list-rules"),
        ("fold-constants", "rule 'fold-constants' cannot be disabled"),
    ],
)
def test_rules_that_cannot_be_disabled(name, said):
    assert parse_disabled(["fold-scale"]) == {"fold-scale"}
    with pytest.raises(UsageError, match=re.escape(said)):
        parse_disabled([name])


AGAIN = "write it again: make docs"
QUICK = ("mobilenet_v2", "onnx's shufflenet")


def test_the_page_lists_every_rule_in_order():
    found = effects_on_page()
    assert list(found) == [rule.name for rule in RULES], AGAIN
    for rule in RULES:
        assert row(rule, found[rule.name]) in PAGE.read_text(), AGAIN


@pytest.mark.parametrize("network", QUICK)
def test_figures_are_true(network):
    assert_true(network)


@needs.everything()
def test_all_figures_on_the_page_are_up_to_date():
    for network in sorted(set(networks_on_page())):
        assert_true(network)


def assert_true(network):
    whole, without = sizes(network)
    assert network in NETWORKS
    for name, text in effects_on_page().items():
        if text.startswith(f"{network}: "):
            assert effect(network, without.get(name, whole), whole) == text, AGAIN
