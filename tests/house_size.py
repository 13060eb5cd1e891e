"""Print how large the project is: ``python -m tests.house_size``."""

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("core", "examples", "foundation", "neocpu", "schedules", "search", "tuning_db", "wheels")


def files(*folders: str) -> list[Path]:
    """Return the Python files of these folders."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text().splitlines())


def functions(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of each function of a file without its docstring, and its name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                size -= node.body[0].end_lineno - node.body[0].lineno + 1
            yield size, f"{path.relative_to(ROOT)}: {node.name}"


def main() -> None:
    """Print lines, files, functions and untyped dictionaries."""
    code, tests = files(*CODE), files("tests")
    rooms = [path for path in (ROOT / "neocpu").iterdir() if (path / "__init__.py").exists()]
    untyped = sum(path.read_text().count("dict[str, Any]") for path in code)
    longest = max(each for path in code for each in functions(path))
    sizes = sorted((lines(path), str(path.relative_to(ROOT))) for path in code)
    rows = [
        ("lines of Python without tests", f"{sum(map(lines, code)):,}"),
        ("lines of tests", f"{sum(map(lines, tests)):,}"),
        ("files without tests", f"{len(code):,}"),
        ("median file", f"{statistics.median(size for size, _ in sizes):.0f} lines"),
        ("longest file", f"{sizes[-1][0]} lines, {sizes[-1][1]}"),
        ("files above 400 lines", str(sum(size > 400 for size, _ in sizes))),
        ("longest function", f"{longest[0]} lines, {longest[1]}"),
        ("dict[str, Any]", str(untyped)),
        ("rooms of neocpu/", str(len(rooms))),
    ]
    width = max(len(name) for name, _ in rows)
    sys.stdout.writelines(f"{name:{width}}  {value}\n" for name, value in rows)


if __name__ == "__main__":
    main()
