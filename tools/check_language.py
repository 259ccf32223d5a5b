"""Checks the language of the documents and docstrings: plain words, whole sentences, of bearable length.

`make check` runs it, after codespell has looked for misspellings (its exceptions are in pyproject.toml). A
linter of prose with a dictionary of its own would be slower and stumble over code; these few rules are the
ones that were broken.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ("src", "tools", "examples")  # whose docstrings others read
LONGEST_SENTENCE: Final = 50  # words

# Each word, and what to write instead: the first group says in Latin what English says shorter, the second
# praises where a figure would convince, the third takes a process or a user for a man.
PLAIN_WORDS: Final = {
    "utilize": "use", "utilise": "use", "leverage": "use", "functionality": "function", "prior to": "before",
    "in order to": "to", "subsequently": "then", "facilitate": "help", "commence": "begin", "e.g.": "such as",
    "i.e.": "that is", "hence": "so", "thus": "so", "whilst": "while", "aforementioned": "this",
    "simply": "nothing", "obviously": "nothing", "of course": "nothing", "seamless": "what happens",
    "seamlessly": "what happens", "robust": "what it survives", "powerful": "what it can do",
    "blazing": "a figure", "lightning-fast": "a figure", "performant": "a figure", "cutting-edge": "nothing",
    "state-of-the-art": "nothing", "effortlessly": "how many lines",
    "he": "the user, the process, they", "him": "the user, the process, them", "his": "the user's, their",
    "himself": "themselves",
}  # fmt: skip
# A docstring that begins so is a riddle: it names a thing by a question, or by one that was not mentioned.
FRAGMENTS: Final = re.compile(r"(?:What|Who|Whom|Whose|Whether|Which|Those|Under|Not|For who)\b")

_WORDS: Final = re.compile(
    rf"(?<![\w`-])(?:{'|'.join(map(re.escape, sorted(PLAIN_WORDS, key=len, reverse=True)))})(?![\w-])",
    re.IGNORECASE,
)
_FENCED: Final = re.compile(r"^ *(`{3,}).*?^ *\1$", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(
    r"(`+)[^`]*\1|\]\([^)]*\)|\"[^\"\n]*\"|“[^”]*”"
)  # code, targets of links, quotations
_SENTENCE_END: Final = re.compile(r"(?<=[.!?:;])\s+")
_BORDER: Final = re.compile(r"\n\s*\n(?:(?:[-*]|\d+\.) )?|^ *(?:[-*]|\d+\.) ", re.MULTILINE)


class Passage(NamedTuple):
    text: str
    place: str
    line: int


def problems_of_page(text: str, place: str) -> Iterator[str]:
    """Yield what is wrong with the prose of a Markdown page; its code is left alone."""
    prose = _CODE.sub(_blank, _FENCED.sub(_blank, text))
    yield from _unplain(Passage(prose, place, 1))
    for start, paragraph in _paragraphs(prose):
        for sentence in _SENTENCE_END.split(paragraph):
            if (words := len(sentence.split())) > LONGEST_SENTENCE:
                line = prose.count("\n", 0, start) + 1
                yield f"{place}:{line}: a sentence of {words} words: {' '.join(sentence.split())[:60]} …"


def problems_of_source(text: str, place: str) -> Iterator[str]:
    """Yield what is wrong with the docstrings of a Python file."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        docstring = ast.get_docstring(node)
        if docstring is None:
            continue
        line = node.body[0].lineno
        if FRAGMENTS.match(docstring):
            yield f"{place}:{line}: a docstring begins with a thing or a verb, not {docstring[:30]!r}"
        yield from _unplain(Passage(_CODE.sub(_blank, docstring), place, line))


def _unplain(passage: Passage) -> Iterator[str]:
    for found in _WORDS.finditer(passage.text):
        line = passage.line + passage.text.count("\n", 0, found.start())
        yield f"{passage.place}:{line}: {found[0]!r}: write {PLAIN_WORDS[found[0].lower()]!r}"


def _paragraphs(prose: str) -> Iterator[tuple[int, str]]:
    """Yield paragraphs and items of lists with where they begin; headings and tables have no sentences."""
    borders = [(0, 0), *(found.span() for found in _BORDER.finditer(prose)), (len(prose), len(prose))]
    for (_, start), (end, _) in pairwise(borders):
        if not prose[start:end].lstrip().startswith(("|", "#")):
            yield start, prose[start:end]


def _blank(code: re.Match[str]) -> str:
    """Return as many lines as the code had, with one word in its place."""
    return "code" + "\n" * code[0].count("\n")


def pages() -> Iterable[Path]:
    """Return the pages that people write; others are made from docstrings, which are checked there."""
    generated = {ROOT / "docs/reference" / name for name in ("commands.md", "http-api.md", "metrics.md")}
    return sorted(
        {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")} - generated
    )


def main() -> None:
    problems = [
        problem
        for path in pages()
        for problem in problems_of_page(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
    ]
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            problems += problems_of_source(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
