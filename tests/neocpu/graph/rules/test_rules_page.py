"""The page of all rules equals their descriptions, and its figures are right."""

import pytest

from tests import needs
from tests.neocpu.graph.rules.rules_page import (
    NETWORKS,
    PAGE,
    RULES,
    effect,
    effects_on_page,
    networks_on_page,
    row,
    sizes,
)

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
