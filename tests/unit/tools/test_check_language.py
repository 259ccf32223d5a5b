"""The check of the language finds what it is for, and leaves code alone."""

import pytest

from check_language import problems_of_page, problems_of_source


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("One line.\n\nHe reads it.", "a.md:3: 'He': write 'the user, the process, they'"),
        ("| a | in order to\nutilize it |", "a.md:1: 'in order to': write 'to'"),
        (f"Short.\n\n- {'word ' * 51}", "a.md:3: a sentence of 51 words: word word"),
    ],
)
def test_prose_that_is_not_plain_is_named_with_its_line(page: str, problem: str) -> None:
    assert next(problems_of_page(page, "a.md")).startswith(problem)


@pytest.mark.parametrize(
    "page",
    [
        "```python\n# he can utilize it\n```",
        "`--utilize` and the `e.g.` option",
        'The documents say "he simply waits".',
        "[a page](../he/his.md)",
        "The heart of this thesis.",
        f"| {'word ' * 80} |",
        "\n".join(f"- {'word ' * 20}" for _ in range(5)),
    ],
)
def test_code_quotations_and_tables_are_left_alone(page: str) -> None:
    assert list(problems_of_page(page, "a.md")) == []


@pytest.mark.parametrize(
    "opening", ["What is wrong.", "Those of the file.", "Whether it does.", "Not the others."]
)
def test_a_docstring_that_opens_with_a_riddle_is_named(opening: str) -> None:
    source = f'x = 1\n\n\ndef f() -> None:\n    """{opening}"""\n'
    [found] = problems_of_source(source, "a.py")
    assert found == f"a.py:5: a docstring begins with a thing or a verb, not {opening!r}"


def test_a_docstring_that_says_what_is_returned_is_fine() -> None:
    assert list(problems_of_source('"""Return what is wrong."""\n', "a.py")) == []
