"""How much fits one address: what is longer is refused, by NocoDB with 431, by a proxy before it with 414."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from tidegate.errors import BadInputError
from tidegate.upstream.nocodb.border import MOST_PER_PAGE
from tidegate.upstream.nocodb.where import Value
from tidegate.upstream.wire import Request

# NocoDB takes 16,383 bytes, headers included; nginx and Apache, if one is in front of it, about 8,190.
URL_BYTES: Final = 8_000


def how_many_fit(
    values: Sequence[Value], asking: Callable[[Sequence[Value]], Request], url_bytes: int
) -> int:
    """The largest n so that a request for the first n values fits, and so does its answer.

    Raises BadInputError if not even one does: the rest of the filter is too long.
    """

    def size(count: int) -> int:
        return len(asking(values[:count]).target)

    # A value takes a comma and a character at least: no use in looking further.
    most = min(len(values), MOST_PER_PAGE, url_bytes // 2)
    fit = bisect_right(range(1, most + 1), url_bytes, key=size)
    if values and not fit:
        raise BadInputError(
            f"an address of {size(1)} bytes for one value, {url_bytes} are possible: ask with a shorter "
            "condition or for fewer fields"
        )
    return fit
