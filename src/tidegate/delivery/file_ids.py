"""The cache of file_ids: each file is uploaded once, and a second upload of it waits for the first."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

MOST_IDS: Final = 4_096
# Kinds of files that a later message may name by their file_id. Thumbnails cannot be named.
REUSABLE_KINDS: Final = frozenset(
    ("photo", "document", "video", "audio", "voice", "animation", "sticker", "video_note")
)

FileKey = Hashable  # bot, kind and content


class FileIdCache:
    """Bounded: the least recently used ids make room. Belongs to one event loop."""

    def __init__(self, most: int = MOST_IDS) -> None:
        self._most = most
        self._ids: OrderedDict[FileKey, str | None] = OrderedDict()  # None: the upload gave none
        self._flights: dict[FileKey, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._ids)

    @asynccontextmanager
    async def claim(self, keys: Collection[FileKey]) -> AsyncIterator[Mapping[FileKey, str]]:
        """The known ids. The caller uploads the rest; other callers that ask for it meanwhile wait.

        No caller waits while holding a claim, so two albums that share files cannot block each other.
        A holder that leaves without `learn` passes the duty to one of the callers that wait.
        """
        while flight := next((self._flights[key] for key in keys if key in self._flights), None):
            await flight.wait()
        known = {key: file_id for key in keys if (file_id := self._recall(key)) is not None}
        mine = {key: asyncio.Event() for key in keys if key not in self._ids}
        self._flights |= mine
        try:
            yield known
        finally:
            for key, landed in mine.items():
                del self._flights[key]
                landed.set()

    def learn(self, key: FileKey, file_id: str | None) -> None:
        """Remember an id. None: an upload gives no id, so that no caller waits for one again."""
        self._ids[key] = file_id
        self._ids.move_to_end(key)
        if len(self._ids) > self._most:
            self._ids.popitem(last=False)

    def forget(self, key: FileKey, file_id: str) -> None:
        """Telegram rejected this id. A newer one that another caller has learned since stays."""
        if self._ids.get(key) == file_id:
            del self._ids[key]

    def _recall(self, key: FileKey) -> str | None:
        if key in self._ids:
            self._ids.move_to_end(key)
        return self._ids.get(key)


def file_id_in(result: object, kind: str, index: int) -> str | None:
    """The file_id of the given kind in a result: a message, or the `index`th of an album."""
    message = result
    if isinstance(result, list):
        message = result[index] if index < len(result) else None
    found: Any = message.get(kind) if isinstance(message, Mapping) else None
    if isinstance(found, list):  # a photo in several sizes
        found = max((size for size in found if isinstance(size, Mapping)), key=_area, default=None)
    file_id = found.get("file_id") if isinstance(found, Mapping) else None
    return file_id if isinstance(file_id, str) and file_id else None


def _area(size: Mapping[str, Any]) -> int:
    width, height = size.get("width"), size.get("height")
    return width * height if isinstance(width, int) and isinstance(height, int) else 0
