"""Sessions of flows in memory, for tests and bots that may forget."""

from tidegate.flows.port import FlowSessionStore, SessionKey
from tidegate.flows.session import Session, read_session


class MemoryFlowSessions(FlowSessionStore):
    """As bytes, which take less room than what they mean."""

    def __init__(self) -> None:
        self.kept: dict[SessionKey, bytes] = {}

    async def get(self, place: SessionKey) -> Session | None:
        written = self.kept.get(place)
        return None if written is None else read_session(written)

    async def put(self, place: SessionKey, session: Session) -> None:
        self.kept[place] = session.to_json()

    async def drop(self, place: SessionKey) -> None:
        self.kept.pop(place, None)
