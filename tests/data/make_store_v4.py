"""Makes store-v4.db: the sample of version 3 brought up to date, with sessions of a flow.

Run once with the code that had that version; later versions must open the file that came of it, so it is
not made again.
"""

import shutil
from pathlib import Path
from typing import Final

from tidegate.flows.effects import PendingEffect, SayText
from tidegate.flows.port import SessionKey
from tidegate.flows.session import Session
from tidegate.sim.virtual_time import VirtualClock, run
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.flow_sessions import SqliteFlowSessions

PLACE: Final = Path(__file__).with_name("store-v4.db")


async def main(clock: VirtualClock) -> None:
    file = StoreFile(PLACE)
    await file.open()
    sessions = SqliteFlowSessions(file, clock, "shop")
    waiting = Session(flow="shop", state="waiting", visit=3, data={"order": 5}, due=100.0, expires_at=900.0)
    unsaid = Session(flow="shop", state="start", visit=1, pending=(PendingEffect("u1", 0, SayText("Hi")),))
    await sessions.commit(SessionKey(42, 7, 7), waiting, expected=0, seen="campaign", at=5.0)
    await sessions.commit(SessionKey(42, -100, 7, 3), unsaid, expected=0)
    await sessions.commit(SessionKey(42, 8, 8), waiting, expected=0)
    await sessions.commit(SessionKey(42, 8, 8), None, expected=1)
    await sessions.save_fingerprint("b5")
    await file.close()


if __name__ == "__main__":
    shutil.copy(PLACE.with_name("store-v3.db"), PLACE)
    run(main)
