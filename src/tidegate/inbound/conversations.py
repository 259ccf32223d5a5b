"""Conversations (FSM state and data of a user in a chat): the port, its records, and their data as JSON."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from tidegate.errors import BadInputError
from tidegate.inbound.tagged_json import UnstorableError, from_json, to_json

CONVERSATIONS_PER_PAGE: Final = 1_000


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

    async def get_state(self, key: ConversationKey) -> str | None:
        """Return None, too, for a conversation whose data cannot be decoded: no state without its data."""
        ...

    async def put(self, key: ConversationKey, state: str | None, data: bytes | None) -> None:
        """Set state and data in one step. Both None: the conversation ends."""

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
    """Return the data as JSON (see `tagged_json`), or None if they are empty.

    Raises BadInputError that names the first field which cannot be stored.
    """
    if not data:
        return None
    # Users' texts may hold half of a surrogate pair.
    return data_to_json(data).encode(errors="surrogatepass")


def data_to_json(data: Mapping[str, Any], *, ascii_only: bool = False) -> str:
    """Raises BadInputError as `pack_data` does."""
    try:
        return to_json(dict(data), ascii_only=ascii_only)
    except UnstorableError as error:
        raise BadInputError(f"the data of a conversation cannot be stored: {error}") from error


def data_from_json(text: str) -> dict[str, Any]:
    """Return a new dict each time, which the caller may change. Raises UnreadableDataError."""
    try:
        data = from_json(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableDataError(str(error)) from error
    if not isinstance(data, dict):
        raise UnreadableDataError("it is no object")
    return data


def unpack_data(body: bytes | None) -> dict[str, Any]:
    """As `data_from_json`; None: no data."""
    return {} if body is None else data_from_json(_text(body))


def packed_as_ascii(body: bytes) -> str:
    """Return packed data as they are, in ASCII. No type is restored. Raises UnreadableDataError."""
    try:
        data = json.loads(_text(body))
    except (ValueError, RecursionError) as error:
        raise UnreadableDataError(str(error)) from error
    if not isinstance(data, dict):
        raise UnreadableDataError("it is no object")
    return json.dumps(data)


def _text(body: bytes) -> str:
    try:
        return body.decode(errors="surrogatepass")
    except UnicodeDecodeError as error:
        raise UnreadableDataError(str(error)) from error
