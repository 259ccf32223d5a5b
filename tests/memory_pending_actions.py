"""Changes that can be undone for a while in memory, for tests in virtual time."""

import msgspec

from tidegate.database.pending_actions import NewPendingAction, PendingAction
from tidegate.errors import StoreAwayError
from tidegate.model import BotId


class MemoryPendingActions:
    """`away`: the database cannot be reached."""

    def __init__(self) -> None:
        self._actions: dict[int, PendingAction] = {}
        self._last_id = 0
        self.away = False

    async def add(self, new: NewPendingAction) -> PendingAction:
        self._reach()
        self._last_id += 1
        added = PendingAction(id=self._last_id, **msgspec.structs.asdict(new))
        self._actions[added.id] = added
        return added

    async def find(self, action_id: int) -> PendingAction | None:
        self._reach()
        return self._actions.get(action_id)

    async def list(self, bot: BotId | None = None) -> list[PendingAction]:
        self._reach()
        found = [one for one in self._actions.values() if bot in {None, one.choice.bot}]
        return sorted(found, key=lambda one: (one.due_at, one.id))

    async def undo(self, action_id: int) -> bool:
        self._reach()
        found = self._actions.get(action_id)
        if found is None or found.is_begun:
            return False
        del self._actions[action_id]
        return True

    async def claim(self, now: float, lease: float) -> PendingAction | None:
        self._reach()
        for one in sorted(self._actions.values(), key=lambda one: (one.due_at, one.id)):
            if one.due_at <= now:
                claimed = msgspec.structs.replace(one, token=one.token + 1, due_at=now + lease)
                self._actions[one.id] = claimed
                return claimed
        return None

    async def extend(self, action: PendingAction, done: int, until: float) -> bool:
        self._reach()
        if not self._is_held(action):
            return False
        self._actions[action.id] = msgspec.structs.replace(action, done=done, due_at=until)
        return True

    async def finish(self, action: PendingAction) -> bool:
        self._reach()
        if not self._is_held(action):
            return False
        del self._actions[action.id]
        return True

    async def next_due(self) -> float | None:
        self._reach()
        return min((one.due_at for one in self._actions.values()), default=None)

    def _is_held(self, action: PendingAction) -> bool:
        found = self._actions.get(action.id)
        return found is not None and found.token == action.token

    def _reach(self) -> None:
        if self.away:
            raise StoreAwayError("the database cannot be reached")
