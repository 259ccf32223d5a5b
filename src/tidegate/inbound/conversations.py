"""Conversations (FSM state and data of a user in a chat): the port, its records, and their data as JSON."""

import json
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final, NamedTuple, Protocol

from tidegate.errors import BadInputError

CONVERSATIONS_PER_PAGE: Final = 1_000
_MAX_DEPTH: Final = 100  # levels; deeper data are refused without a complete path
_ADVICE: Final = "Give texts, finite numbers, True, False, None, lists, and dicts whose keys are texts"

# As aiogram's other storages do: subclasses of texts and numbers, such as enums, come back as plain ones.
_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_decode: Final = json.JSONDecoder().decode


class UnreadableDataError(ValueError):
    """The stored data of a conversation cannot be decoded."""


class ConversationKey(NamedTuple):
    """Two keys that differ in any field are two conversations. `destiny` separates those of one user."""

    bot: int
    chat: int
    user: int
    thread: int | None = None
    business: str | None = None
    destiny: str = "default"


class Conversation(NamedTuple):
    """`number` rises with the time at which it began; `changed_at` is in epoch seconds."""

    number: int
    key: Any  # a ConversationKey, or the key of the bot library that asked
    state: str | None
    data: dict[str, Any]
    changed_at: float


class Conversations(Protocol):
    """Each call is one step, whole or not at all, and durable when it returns.

    Data are JSON from `pack_data`. A conversation with neither state nor data takes no room. Keys and states
    that cannot be stored raise BadInputError. A conversation whose data cannot be decoded is logged and set
    aside where that is noticed: it is empty then, and its bytes stay in the store.
    """

    async def set_aside(self, key: ConversationKey, error: UnreadableDataError) -> None:
        """The caller cannot decode the data of this conversation."""

    async def set_state(self, key: ConversationKey, state: str | None) -> None: ...

    async def get_state(self, key: ConversationKey) -> str | None: ...

    async def set_data(self, key: ConversationKey, data: bytes | None) -> None: ...

    async def get_data(self, key: ConversationKey) -> bytes | None: ...

    async def merge_data(self, key: ConversationKey, data: bytes) -> dict[str, Any]:
        """Add `data` in one step, so that concurrent updates do not overwrite each other. Return all."""
        ...

    async def page(
        self, destiny: str | None, state: str | None, *, after: int, limit: int
    ) -> list[Conversation]:
        """Return conversations in order of their numbers, beginning after that number. None matches all."""
        ...

    async def expire(self, before: float, destiny: str) -> int:
        """Delete those that were last changed before that time, in epoch seconds; return how many."""
        ...


def pack_data(data: Mapping[str, Any]) -> bytes | None:
    """Return the data as JSON, or None if they are empty. A tuple comes back as a list.

    Raises BadInputError that names the first field which JSON cannot hold.
    """
    plain = dict(data)
    if not plain:
        return None
    try:
        text = _encode(plain)
        if _decode(text) != plain and (unstorable := _find_unstorable(plain, "")):
            raise _refusal(unstorable)
    except (TypeError, RecursionError, ValueError) as error:
        if isinstance(error, BadInputError):
            raise
        raise _refusal(_find_unstorable(plain, "") or str(error)) from error
    return text.encode(errors="surrogatepass")  # users' texts may hold half of a surrogate pair


def _refusal(unstorable: str) -> BadInputError:
    return BadInputError(f"the data of a conversation cannot be stored: {unstorable}. {_ADVICE}")


def unpack_data(body: bytes | None) -> dict[str, Any]:
    """Return a new dict each time, which the caller may change. Raises UnreadableDataError."""
    if body is None:
        return {}
    try:
        data = _decode(body.decode(errors="surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise UnreadableDataError(str(error)) from error
    if not isinstance(data, dict):
        raise UnreadableDataError("it is no object")
    return data


def _find_unstorable(value: object, path: str, depth: int = 0) -> str | None:
    """Describe the first value that JSON cannot hold, and where it is."""
    if depth > _MAX_DEPTH:
        return f"it is nested more than {_MAX_DEPTH} deep, at {path[:80]!r}…"
    if isinstance(value, dict):
        found: Iterable[str | None] = (
            _find_unstorable(one, f"{path}.{key}" if path else key, depth + 1)
            if isinstance(key, str)
            else f"a key of {path or 'the data'!r} is {key!r}, no text"
            for key, one in value.items()
        )
        return next(filter(None, found), None)
    if isinstance(value, list | tuple):
        found = (_find_unstorable(one, f"{path}[{index}]", depth + 1) for index, one in enumerate(value))
        return next(filter(None, found), None)
    if isinstance(value, float):
        return None if isfinite(value) else f"{path!r} is {value}"
    if value is None or isinstance(value, str | int):
        return None
    return f"{path!r} is of the type {type(value).__name__}"
