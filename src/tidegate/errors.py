"""Everything Tidegate raises on purpose.

TidegateError
└── BadInputError      what was given cannot be used; the text says what to give instead
"""


class TidegateError(Exception):
    """The root: catch this to catch every error that Tidegate raises on purpose."""


class BadInputError(TidegateError, ValueError):
    """What was given cannot be used. The text says what was given and what is expected."""
