"""Makes store-v3.db: the sample of version 2 brought up to date, with a subscription in every state, and
conversations.

Run once with the code that had that version; later versions must open the file that came of it, so it is
not made again.
"""

import shutil
from pathlib import Path
from typing import Final

from aiogram.fsm.storage.base import StorageKey

from tidegate.adapters.aiogram.fsm_storage import SqliteStorage
from tidegate.polling.subscriptions import News, Subscription
from tidegate.sim.virtual_time import VirtualClock, run
from tidegate.stores.sqlite.conversations import SqliteConversations
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.subscriptions import SqliteSubscriptions

PLACE: Final = Path(__file__).with_name("store-v3.db")


async def main(clock: VirtualClock) -> None:
    file = StoreFile(PLACE)
    await file.open()
    kept = SqliteSubscriptions(file, clock, "orders")
    names = ("removed", "waits", "to be told", "watched", "reversed")
    await kept.add([Subscription(name, {"chat": 7}, since=5.0) for name in names])
    await kept.note_news([News(name, {"Paid": True}) for name in names[2:]])
    await kept.settle_news(["watched", "reversed"], "watch")
    await kept.note_news([News("reversed", {"Paid": False}, "reversed")])
    await kept.remove(["removed"])
    await kept.save_watermark("2026-01-05 09:00:00+00:00")
    await kept.leases.lease(kept.name, 10)
    await talk(file, clock)
    await file.close()  # and it has the lease, as if this process had died


async def talk(file: StoreFile, clock: VirtualClock) -> None:
    async def opened() -> SqliteConversations:
        return SqliteConversations(file, clock)

    conversations = SqliteStorage(opened)
    await conversations.set_state(StorageKey(42, 7, 7), "asked")
    await conversations.set_data(StorageKey(42, 7, 7), {"order": 5})
    await conversations.set_state(StorageKey(42, -100, 7, 3, "business", "shop"), "paying")
    await conversations.set_data(StorageKey(42, 8, 8), {"seen": True})
    await conversations.set_state(StorageKey(42, 9, 9), "ended")
    await conversations.set_state(StorageKey(42, 9, 9), None)


if __name__ == "__main__":
    shutil.copy(PLACE.with_name("store-v2.db"), PLACE)
    run(main)
