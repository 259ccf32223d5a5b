"""A filter as the text that NocoDB reads.

It has two grammars. The old one every version reads, but a value stands in it as it is, so parentheses and
line breaks end it, and groups may not stand side by side. The new one, marked by an `@` in front, has quotes,
without a way to escape them. Filters that both can say go out in the old one.
"""

import re
from typing import Final

from tidegate.errors import BadInputError
from tidegate.upstream.nocodb.where import AllOf, AnyOf, Condition, Where

MARK: Final = "@"
_NEVER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")
_BREAKS_OLD = re.compile(r"[()~\n\r\u2028\u2029]")
_BREAKS_BARE = re.compile(r"[()'\",~\s]")


def text_of(where: Where) -> str:
    """Raises BadInputError if neither grammar can say it."""
    return _written(where, old=True) if _fits_old(where) else MARK + _written(where, old=False)


def _written(where: Where, *, old: bool) -> str:
    if isinstance(where, Condition):
        words = (_name(where.field, old=old), where.operator, *_values(where, old=old))
        return f"({','.join(words)})"
    # A group of one would lose its joint in the new grammar: `all_of` and `any_of` make none.
    joint = "~and" if isinstance(where, AllOf) else "~or"
    return joint.join(_part(part, old=old) for part in where.parts)


def _part(where: Where, *, old: bool) -> str:
    text = _written(where, old=old)
    return text if isinstance(where, Condition) else f"({text})"


def _fits_old(where: Where) -> bool:
    if isinstance(where, Condition):
        fits = not any(map(_BREAKS_OLD.search, where.values)) and "," not in where.field
        whole = where.operator != "in" or not any("," in value for value in where.values)
        return fits and whole and not _BREAKS_OLD.search(where.field)
    groups = sum(isinstance(part, AllOf | AnyOf) for part in where.parts)
    return groups <= 1 and all(map(_fits_old, where.parts))


def _name(field: str, *, old: bool) -> str:
    if not field.strip() or _NEVER.search(field):
        raise BadInputError(f"{field!r:.60} is no name of a field: give its title as NocoDB shows it")
    return field if old or not _BREAKS_BARE.search(field) else _quoted(field)


def _values(condition: Condition, *, old: bool) -> tuple[str, ...]:
    for value in condition.values:
        if _NEVER.search(value):
            raise BadInputError(f"a value for {condition.field} holds control characters: {value!r:.60}")
    return condition.values if old else tuple(map(_quoted, condition.values))


def _quoted(value: str) -> str:
    if value.endswith("\\"):  # it would take the closing quote with it, up to the next one
        if not _BREAKS_BARE.search(value):
            return value
    elif "'" not in value:
        return f"'{value}'"  # one byte in an address, the other kind takes three
    elif '"' not in value:
        return f'"{value}"'
    raise BadInputError(
        f"{value!r:.60} cannot be said in a filter of NocoDB that also needs quotes: it holds both kinds of "
        "them, or a quote or space before a last backslash; ask for this value alone, by eq()"
    )
