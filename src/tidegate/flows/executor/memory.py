"""Sessions in memory: for tests, and bots that may forget."""

from tidegate.flows.executor.place import Place
from tidegate.flows.executor.ports import Sessions
from tidegate.flows.session import Session, read_session


class MemorySessions(Sessions):
    """As bytes, which take less room than what they mean."""

    def __init__(self) -> None:
        self.kept: dict[Place, bytes] = {}

    async def get(self, place: Place) -> Session | None:
        written = self.kept.get(place)
        return None if written is None else read_session(written)

    async def put(self, place: Place, session: Session) -> None:
        self.kept[place] = session.to_json()

    async def drop(self, place: Place) -> None:
        self.kept.pop(place, None)
