"""The updates that wait for a bot: numbered, in order, kept until confirmed."""

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any

Update = dict[str, Any]
UPDATES_KEPT = 100_000
# Telegram leaves these out unless a bot names them in allowed_updates.
_ON_REQUEST = {"chat_member", "message_reaction", "message_reaction_count"}


class UpdateQueue:
    """Ids are consecutive, so what comes after an update is found without a search."""

    def __init__(self) -> None:
        self._pending: dict[int, Update] = {}
        self._next_id = 1
        self._allowed: frozenset[str] = frozenset()
        self.dropped = 0  # lost because nobody fetched them
        self.on_put: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def allowed(self) -> list[str]:
        return sorted(self._allowed)

    def allow(self, kinds: Iterable[str]) -> None:
        """Which kinds come in from now on; none named means the usual ones."""
        self._allowed = frozenset(kinds)

    def put(self, kind: str, content: Update) -> None:
        if (kind not in self._allowed) if self._allowed else (kind in _ON_REQUEST):
            return
        self._pending[self._next_id] = {"update_id": self._next_id, kind: content}
        self._next_id += 1
        if len(self._pending) > UPDATES_KEPT:
            del self._pending[next(iter(self._pending))]
            self.dropped += 1
        if self.on_put:
            self.on_put()

    def confirm_before(self, offset: int) -> None:
        """Forget what was fetched. A negative offset keeps only the last updates, as getUpdates has it."""
        if offset < 0:
            offset = self._next_id + offset
        for update_id in list(takewhile(lambda waiting: waiting < offset, self._pending)):
            del self._pending[update_id]

    def first(self, limit: int) -> list[Update]:
        return [update for update, _ in zip(self._pending.values(), range(limit), strict=False)]

    def after(self, update_id: int) -> Update | None:
        """The next waiting update with a higher id."""
        first = next(iter(self._pending), self._next_id)
        for candidate in range(max(first, update_id + 1), self._next_id):
            if candidate in self._pending:
                return self._pending[candidate]
        return None

    def confirm(self, update_id: int) -> None:
        self._pending.pop(update_id, None)

    def clear(self) -> None:
        self._pending.clear()
