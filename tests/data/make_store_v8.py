"""Makes store-v8.db: the sample of version 7 brought up to date; its message in retry is in the new index.

Run once with the code that had that version; later versions must open the file that came of it, so it is
not made again.
"""

import shutil
from pathlib import Path
from typing import Final

from tidegate.sim.virtual_time import VirtualClock, run
from tidegate.stores.sqlite.file import StoreFile

PLACE: Final = Path(__file__).with_name("store-v8.db")


async def main(_clock: VirtualClock) -> None:
    file = StoreFile(PLACE)
    await file.open()
    await file.close()


if __name__ == "__main__":
    shutil.copy(PLACE.with_name("store-v7.db"), PLACE)
    run(main)
