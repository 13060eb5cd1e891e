"""The rules of plain English that ``test_language.py`` holds code and documents to.

It needs nothing but Python: ``python -m tests.language_rules PATH ...`` lists what is wrong there.
"""

import ast
import inspect
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

#: Words that open a fragment. "Whether ..." is a description that English speakers expect; "To open
#: a file" is none.
OPENINGS = frozenset(
    "of what how where when which who whose whom why with in for from by at on to without within "
    "before after between behind beside under over until till since as than because if that about "
    "into onto against among per".split()
)

#: Words of a private vocabulary as parts of public names. A lane is one of a SIMD register.
NAMES = frozenset(
    "apart together picked settle settles settled shelf shelves descent crew crews subject "
    "subjects held told".split()
)

#: Words and turns of phrase that no docstring and no document has, with what to write instead.
PHRASES = {
    r"crews?": "group",
    r"subjects?(?! to\b)": "the thing itself: model, workload",
    r"picked": "selected",
    r"settl(e|es|ed|ing)": "hoist, decide",
    r"shel(f|ves)": "index",
    r"descents?": "accuracy fallback",
    r"held": "kept, bounded by",
    r"told(?! apart)": "given, reported",
    r"of which": "a relative clause of its own, or a second sentence",
    r"than which": "a comparison with the subject first",
    r"for (they|he|she|there) (is|are|has|have|were|was|do|does|can)": "because",
}

SENTENCE_WORDS = 40
CELL_WORDS = 12
#: Sections of a numpydoc docstring that describe one thing after another.
SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "Yields")
#: The first lines of documents that a program writes.
GENERATED = re.compile(
    r"written by the command below|`make docs` writes|^By `python -m|^# Rules for graphs"
)

_PHRASE = re.compile("|".join(rf"\b(?:{text})\b" for text in PHRASES), re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?:(?<=[.!?:;])|(?<=[.!?]\*\*)|(?<=[.!?]\)))\s+(?=[A-Z0-9\"*\[])")
_WORD = re.compile(r"[A-Za-z']+")
_RULE = re.compile(r"\s*-{3,}\s*")


def descriptions(docstring: str) -> Iterator[str]:
    """Yield the first line of a docstring, and that of each thing that its sections describe."""
    lines = docstring.strip().expandtabs().split("\n")
    yield lines[0].strip()
    section = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if _RULE.fullmatch(following):
            section = line.strip()
        elif section in SECTIONS and line[:1].strip() and following[:1] == " ":
            # "If ..." is how numpydoc describes an error.
            yield following.strip().removeprefix("If " if section == "Raises" else "")


def opens_as_fragment(text: str) -> bool:
    """Return whether a description opens with a preposition or a question word."""
    word = _WORD.match(text)
    return word is not None and word.group().lower() in OPENINGS


def phrases(text: str) -> list[str]:
    """Return the banned words and turns of phrase in a text, without those in code quotes."""
    prose = re.sub(r"``[^`]*``|`[^`]*`", "", text)
    return [found.group() for found in _PHRASE.finditer(prose)]


def private_words(name: str) -> list[str]:
    """Return the words of a private vocabulary in a public name."""
    if name.startswith("_"):
        return []
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
    return [word for word in words if word in NAMES]


def _documented(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the name and the docstring of all that has one, constants included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            yield getattr(node, "lineno", 1), getattr(node, "name", "module"), text or ""
        for first, second in itertools.pairwise(_statements(node)):
            match first, second:
                case ast.Assign() | ast.AnnAssign(), ast.Expr(ast.Constant(str(text))):
                    target = first.targets[0] if isinstance(first, ast.Assign) else first.target
                    yield second.lineno, ast.unparse(target), inspect.cleandoc(text)


def _statements(node: ast.AST) -> list[ast.stmt]:
    """Return the statements of a module or a class."""
    return node.body if isinstance(node, ast.Module | ast.ClassDef) else []


def code_faults(source: str) -> list[str]:
    """Return what is wrong with the language of a Python file, one line each."""
    faults = []
    for line, name, text in _documented(ast.parse(source)):
        faults += [f"{line}: the name {name} has {word!r}" for word in private_words(name)]
        faults += [
            f"{line}: opens with a preposition or question word: {each}"
            for each in descriptions(text)
            if opens_as_fragment(each)
        ]
        faults += [f"{line}: {name} says {each!r}" for each in phrases(text)]
    return faults


def is_generated(document: str) -> bool:
    """Return whether a document says in its first lines that a program writes it."""
    return any(GENERATED.search(line) for line in document.split("\n")[:8])


def _blocks(document: str) -> Iterator[str]:
    """Yield paragraphs, items of lists, headings and rows of tables, without blocks of code."""
    block: list[str] = []
    fenced = False
    for line in [*document.split("\n"), ""]:
        fence = line.lstrip().startswith(("```", "~~~"))
        alone = fence or fenced or not line.strip() or line.startswith(("|", "#"))
        begins = alone or re.match(r"\s*([-*]|\d+\.) ", line) or (line[:4] == "    " and not block)
        if begins and block:
            yield " ".join(block)
            block = []
        if not alone and not (line[:4] == "    " and not block):
            block.append(line.strip())
        elif line.startswith("|") and not fenced:
            yield line
        fenced ^= fence


def _plain(text: str) -> str:
    """Return a text with every piece of code as one word, and without the targets of links."""
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "X", text))


def document_faults(document: str) -> list[str]:
    """Return what is wrong with the language of a document, one line each."""
    faults = []
    for block in _blocks(document):
        text = _plain(block)
        faults += [f"says {each!r}: {text[:60]}" for each in phrases(block)]
        if block.startswith("|"):
            cells = (cell for cell in text.strip("|").split("|") if len(cell.split()) > CELL_WORDS)
            faults += [f"a cell of {len(cell.split())} words: {cell.strip()}" for cell in cells]
            continue
        for sentence in _SENTENCE_END.split(text):
            if len(sentence.split()) > SENTENCE_WORDS:
                faults.append(f"a sentence of {len(sentence.split())} words: {sentence}")
    return faults


def file_faults(path: Path) -> list[str]:
    """Return what is wrong with the language of a Python file or a document."""
    text = path.read_text()
    if path.suffix == ".py":
        found = code_faults(text)
    else:
        found = [] if is_generated(text) else document_faults(text)
    return [f"{path}:{fault}" for fault in found]


def main() -> None:
    """Print what is wrong in the files and folders of the command line."""
    for argument in map(Path, sys.argv[1:]):
        files = [argument] if argument.is_file() else sorted(argument.rglob("*.py"))
        sys.stdout.writelines(f"{fault}\n" for file in files for fault in file_faults(file))


if __name__ == "__main__":
    main()
