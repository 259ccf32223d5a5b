"""The updates that wait for a bot: numbered, in order, kept until confirmed."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

UpdateJson = dict[str, Any]
UPDATES_KEPT = 100_000
# Telegram leaves these out unless a bot names them in allowed_updates.
_ON_REQUEST = {"chat_member", "message_reaction", "message_reaction_count"}


class PendingUpdates:
    """Ids are consecutive, so the update after another is found without a search.

    The dict is never iterated: a dict whose first entries are gone is slow to find the next one.
    """

    def __init__(self) -> None:
        self._pending: dict[int, UpdateJson] = {}
        self._first_id = 1  # no pending id is lower
        self._next_id = 1
        self._allowed: frozenset[str] = frozenset()
        self.dropped = 0  # lost because the bot did not fetch them
        self.on_put: Callable[[], None] | None = None
        self.on_drop: Callable[[UpdateJson], None] | None = None

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def allowed(self) -> list[str]:
        return sorted(self._allowed)

    def allow(self, kinds: Iterable[str]) -> None:
        """Set the kinds that are accepted from now on; none means Telegram's default."""
        self._allowed = frozenset(kinds)

    def put(self, kind: str, content: UpdateJson) -> None:
        if (kind not in self._allowed) if self._allowed else (kind in _ON_REQUEST):
            return
        self._pending[self._next_id] = {"update_id": self._next_id, kind: content}
        self._next_id += 1
        if len(self._pending) > UPDATES_KEPT:
            self._drop_oldest()
        if self.on_put:
            self.on_put()

    def confirm_before(self, offset: int) -> None:
        """Forget fetched updates. A negative offset keeps only the last ones, as in getUpdates."""
        if offset < 0:
            offset = self._next_id + offset
        for update_id in range(self._first_id, min(offset, self._next_id)):
            self.confirm(update_id)
            self._first_id = update_id + 1

    def first(self, limit: int) -> list[UpdateJson]:
        found: list[UpdateJson] = []
        update = self.after(0)
        while update is not None and len(found) < limit:
            found.append(update)
            update = self.after(update["update_id"])
        return found

    def get(self, update_id: int) -> UpdateJson | None:
        return self._pending.get(update_id)

    def after(self, update_id: int) -> UpdateJson | None:
        """Return the next pending update with a higher id."""
        for candidate in range(max(self._skip_gone(), update_id + 1), self._next_id):
            if candidate in self._pending:
                return self._pending[candidate]
        return None

    def confirm(self, update_id: int) -> None:
        self._pending.pop(update_id, None)

    def clear(self) -> None:
        self._pending.clear()
        self._first_id = self._next_id

    def _drop_oldest(self) -> None:
        oldest = self._pending.pop(self._skip_gone())
        self.dropped += 1
        if self.on_drop:
            self.on_drop(oldest)

    def _skip_gone(self) -> int:
        """Return the lowest pending id; the next new id if none is pending."""
        while self._first_id < self._next_id and self._first_id not in self._pending:
            self._first_id += 1
        return self._first_id


class ChatOrder:
    """Chooses the next update to post: one at a time within a chat, chats side by side.

    Visits each update once, in order of arrival. Holds only ids of updates that wait behind one under way.
    """

    def __init__(self, updates: PendingUpdates) -> None:
        self._updates = updates
        self._seen = 0  # every update up to this id is under way, waits in its chat, or is gone
        self._behind: dict[int | str, deque[int]] = {}
        updates.on_drop = self._forget

    def next(self) -> UpdateJson | None:
        """Return the first update of a chat that has none under way. It is under way until `taken`."""
        while (update := self._updates.after(self._seen)) is not None:
            self._seen = update["update_id"]
            chat = chat_of(update)
            if chat not in self._behind:
                self._behind[chat] = deque()
                return update
            self._behind[chat].append(self._seen)
        return None

    def taken(self, update: UpdateJson) -> UpdateJson | None:
        """Confirm an update; returns the next one of its chat, which is then under way."""
        self._updates.confirm(update["update_id"])
        chat = chat_of(update)
        behind = self._behind[chat]
        if behind:
            return self._updates.get(behind.popleft())
        del self._behind[chat]
        return None

    def _forget(self, dropped: UpdateJson) -> None:
        """Forget a dropped update: the oldest of all is the first of its chat."""
        behind = self._behind.get(chat_of(dropped))
        if behind and behind[0] == dropped["update_id"]:
            behind.popleft()


def chat_of(update: UpdateJson) -> int | str:
    """Return the key of an update's order: its chat, else its sender, else a key of its own."""
    content = next(value for name, value in update.items() if name != "update_id")
    places = (content, content.get("message", {}))
    chat = next((place["chat"] for place in places if "chat" in place), None)
    who = chat or content.get("from") or content.get("user")
    return int(who["id"]) if who else f"update {update['update_id']}"
