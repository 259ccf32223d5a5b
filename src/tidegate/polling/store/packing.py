"""Subscriptions and news as bytes, and back. What would not come back as it was is refused.

Whoever is told after a restart must be told the same as before it.
"""

from typing import Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.polling.subscriptions import News, Subscription

LONGEST_KEY: Final = 200  # characters
MOST_DATA: Final = 16 * 1024  # bytes of JSON
_SHOWN: Final = 40  # characters of a key that is too long

_encode: Final = msgspec.json.Encoder().encode
unpack: Final = msgspec.json.Decoder(Subscription).decode
unpack_news: Final = msgspec.json.Decoder(News).decode


def pack(subscription: Subscription) -> bytes:
    """Raises BadInputError that names the key."""
    key = check_text(subscription.key, "the key of a subscription")
    try:
        body = _encode(subscription)
        is_same = unpack(body) == subscription
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"the data of {key!r} cannot be kept as JSON: {error}") from error
    if not is_same:
        raise BadInputError(
            f"the data of {key!r} would come back changed: give what JSON has, which is texts, finite"
            " numbers, True, False, None, lists, and dicts whose keys are texts"
        )
    if len(body) > MOST_DATA and (size := len(_encode(subscription.data))) > MOST_DATA:
        raise BadInputError(
            f"the data of {key!r} is {size:,} bytes of JSON, of {MOST_DATA:,} allowed: keep the rest"
            " elsewhere, and here what finds it"
        )
    return body


def pack_news(news: News) -> bytes:
    """Raises BadInputError that names the key. A time, and whatever else JSON lacks, comes back as a text."""
    try:
        return _encode(news)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"what was found for {news.key!r} cannot be kept as JSON: {error}") from error


def check_key(key: object) -> str:
    """Of a subscription: a number is its text, as a record's id often is one."""
    whole = isinstance(key, int) and not isinstance(key, bool)
    return check_text(str(key) if whole else key, "the key of a subscription")


def check_text(text: object, what: str) -> str:
    """A key, or the name of a poller. Raises BadInputError."""
    if not isinstance(text, str):
        raise BadInputError(f"{what} is {text!r}, no text: write str(…) around it")
    if not text:
        raise BadInputError(f"{what} is empty: give a text that tells it from the others")
    if len(text) > LONGEST_KEY:
        shown = text[:_SHOWN]
        raise BadInputError(f"{what} has {len(text)} characters, of {LONGEST_KEY} allowed: {shown!r}…")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInputError(f"{what} holds what is no text: {text!r}") from None
    return text
