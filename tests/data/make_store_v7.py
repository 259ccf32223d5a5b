"""Makes store-v7.db: the sample of version 6 brought up to date, with an update feed.

Run once with the code that had that version; later versions must open the file that came of it, so it is
not made again.
"""

import shutil
from pathlib import Path
from typing import Final

from tidegate.inbound.update_feed import NewUpdate, PushTarget, ReadRequest
from tidegate.model import BotId
from tidegate.sim.virtual_time import VirtualClock, run
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.update_feed import SqliteUpdateFeed

PLACE: Final = Path(__file__).with_name("store-v7.db")
BOT: Final = BotId(42)


async def main(clock: VirtualClock) -> None:
    file = StoreFile(PLACE)
    await file.open()
    feed = SqliteUpdateFeed(file, clock)
    await feed.append(BOT, [NewUpdate(5, "message", 7, b'{"message":{}}')])
    await feed.read(BOT, "stats", ReadRequest(kinds=("message", "chat_member")))
    await feed.append(BOT, [NewUpdate(6, "chat_member", 7, b'{"chat_member":{}}')])
    await feed.set_target(BOT, "pushed", PushTarget("http://127.0.0.1/hook", "secret"))
    await file.close()


if __name__ == "__main__":
    shutil.copy(PLACE.with_name("store-v6.db"), PLACE)
    run(main)
