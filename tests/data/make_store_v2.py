"""Makes store-v2.db: the sample of version 1 brought up to date, with an arrival in every state.

Run once with the code that had that version; later versions must open the file that came of it, so it is
not made again.
"""

import shutil
from pathlib import Path
from typing import Final

from tidegate.inbound.inbox import ClaimedItem, InboxItem, bot_source
from tidegate.sim.virtual_time import VirtualClock, run
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.inbox import SqliteInbox

BOT: Final = bot_source(42)
PLACE: Final = Path(__file__).with_name("store-v2.db")


async def main(clock: VirtualClock) -> None:
    file = StoreFile(PLACE)
    await file.open()
    inbox = SqliteInbox(file, clock)
    await inbox.open()
    await inbox.done([await _hold(inbox, "handled")])
    await inbox.park(await _hold(inbox, "parked"), "ValueError: no")
    await _hold(inbox, "held")
    await inbox.accept([InboxItem(BOT, "waiting", "2", b"{}")])
    await file.close()  # and what is held stays so, as if this process had died


async def _hold(inbox: SqliteInbox, key: str) -> ClaimedItem:
    await inbox.accept([InboxItem(BOT, key, "1", b"{}")])
    [held] = await inbox.claim([BOT], 1, suspects=1)
    return held


if __name__ == "__main__":
    shutil.copy(PLACE.with_name("store-v1.db"), PLACE)
    run(main)
