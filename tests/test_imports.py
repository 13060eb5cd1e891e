"""Imports go downwards, from the command line to the foundation, and never in a circle.

Imports within functions count, and so do those for type checkers alone; names in strings do not.
"""

import graphlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from wheels.imports import find_source, imports_of
from wheels.runtime import FOLDERS

#: From the ground up: folders, and the files beside them. Modules of one folder may import each
#: other, in no circle.
ORDER = (
    "neocpu.core",
    "neocpu.foundation",
    *(
        f"neocpu.schedules.{room}"
        for room in (
            *("isa", "vocabulary", "estimates", "tir", "operators", "recurrent", "products"),
            *("convolutions", "registry"),
        )
    ),
    "neocpu.tuning_db",
    "neocpu.search",
    *(
        f"neocpu.{room}"
        for room in (
            *("plan", "runtime", "serving", "batch", "runtime.bundle"),
            *("frontend.shapes.input_shapes", "frontend.shapes.requested_shapes"),
            "frontend.shapes.size_ranges",
            *("frontend.processing.processing", "ir", "planning", "graph", "lowering"),
            *("building", "frontend", "verification.reference"),
            *("plan.reports", "plan.pages", "plan.changes", "plan.result_pages"),
            *("compilation.compiled_module", "compilation.model_forms"),
            *("compilation.artifact_header", "pipeline", "compilation", "quantiser"),
            *("compilation.compile_fat", "verification.divergence", "onnx_backend"),
            *(f"bench.{room}" for room in ("results", "engines", "limits")),
            *(
                "plan.profiling",
                "bench.race",
                "bench",
                "plan.text",
                "verification.reduction",
                "cli",
                "__main__",
            ),
        )
    ),
)
Graph = Mapping[str, set[str]]


def modules() -> Iterator[tuple[str, Path]]:
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            inner = path.relative_to(folder).with_suffix("").parts
            yield ".".join((package, *inner)).removesuffix(".__init__"), path


NAMES = {name for name, _ in modules()}


def needed(path: Path) -> set[str]:
    """Return our modules that a file imports, including those it takes from packages."""
    found = set(imports_of(path, FOLDERS)) & NAMES
    return {n for n in found if not any(m.startswith(f"{n}.") for m in found)} - {"neocpu"}


def named(path: Path) -> set[str]:
    """Return our modules that a file imports or names the types of."""
    text = re.sub(r"(?m)^if TYPE_CHECKING:$", "if True:", path.read_text())
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        return needed(Path(file.name))


IMPORTS: Graph = {name: needed(path) for name, path in modules()}


def rank(module: str) -> int | None:
    """Return a module's place in the order, or None for packages of packages."""
    rooms = [room for room in ORDER if f"{module}.".startswith(f"{room}.")]
    return ORDER.index(max(rooms, key=len)) if rooms else None


def upward(graph: Graph) -> set[str]:
    pairs = ((name, found) for name, all_found in graph.items() for found in all_found)
    ranks = ((f"{name} imports {found}", rank(name), rank(found)) for name, found in pairs)
    return {text for text, mine, theirs in ranks if None not in (mine, theirs) and mine < theirs}


def circle(graph: Graph) -> list[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_every_module_has_a_place_in_the_order():
    assert {name for name in NAMES if rank(name) is None} == {
        *("neocpu", "neocpu.schedules", "neocpu.verification")
    }
    assert [room for room in ORDER if room not in NAMES] == []


def test_imports_go_down():
    assert not upward(IMPORTS)


def test_no_imports_are_circular():
    assert not circle(IMPORTS)


def test_no_imports_for_types_are_circular_or_upward():
    named_by = {name: named(path) for name, path in modules()}
    assert named_by["neocpu.runtime.streams"] > IMPORTS["neocpu.runtime.streams"]
    assert not upward(named_by)
    assert not circle(named_by)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("neocpu.building.link", "neocpu.bench.results.table"),
        ("neocpu.frontend.load", "neocpu.compilation.network_tuning"),
        ("neocpu.foundation.tensor_spec", "neocpu.planning.optimisation_levels"),
        ("neocpu.frontend.models.resnet", "neocpu.compilation.compiler"),
        ("neocpu.foundation.errors", "neocpu.schedules.vocabulary.target"),
        ("neocpu.schedules.operators.pool", "neocpu.schedules.registry"),
    ],
)
def test_upward_imports_are_found(name, found):
    assert {name, found} <= NAMES
    assert upward({**IMPORTS, name: IMPORTS[name] | {found}}) == {f"{name} imports {found}"}


def test_a_circle_is_found():
    assert "neocpu.runtime.header" in IMPORTS["neocpu.runtime.artifact"]
    assert circle({**IMPORTS, "neocpu.runtime.header": {"neocpu.runtime.artifact"}})


def test_tools_and_tests_import_existing_modules():
    """Tests run few tools, and a moved module would break the others unnoticed."""
    root = Path(__file__).parents[1]
    missing = {
        f"{path.relative_to(root)} imports {name}"
        for folder in ("tests", "examples")
        for path in (root / folder).rglob("*.py")
        for name in imports_of(path, FOLDERS)
        if name.startswith("neocpu.") and find_source(name, FOLDERS) is None
    }
    assert not missing
