"""Makes store-v5.db: the sample of version 4 brought up to date, with a broadcast.

Run once with the code that had that version; later versions must open the file that came of it, so it is
not made again.
"""

import shutil
from pathlib import Path
from typing import Final

from tidegate.model import BotId
from tidegate.outbox.campaigns import CampaignRecord
from tidegate.sim.virtual_time import VirtualClock, run
from tidegate.stores.sqlite.campaigns import SqliteCampaigns
from tidegate.stores.sqlite.file import StoreFile

PLACE: Final = Path(__file__).with_name("store-v5.db")


async def main(_: VirtualClock) -> None:
    file = StoreFile(PLACE)
    await file.open()
    news = CampaignRecord(
        bot=BotId(42), name="news", state="paused", audience="list of 3", started_at=5.0, changed_at=6.0
    )
    await SqliteCampaigns(file).save(news, "pause")
    await file.close()


if __name__ == "__main__":
    shutil.copy(PLACE.with_name("store-v4.db"), PLACE)
    run(main)
