"""Makes store-v1.db, a store of version 1 with a message in every state.

Run once with the code that had that version; later versions must open the file that came of it, so it is
not made again.
"""

import os
from pathlib import Path
from typing import Any, Final

from tidegate.model import (
    BotId,
    Claim,
    Dead,
    Delivered,
    File,
    Message,
    Migrated,
    Outcome,
    Rate,
    Refused,
    Retry,
    Settlement,
    TicketId,
    Unknown,
)
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock, run
from tidegate.stores.sqlite.outbox import SqliteOutbox

BOT: Final = BotId(42)
ROOMY: Final = Rules(bot=Rate(1000, 1), private=Rate(1000, 1), group=Rate(1000, 1))
PLACE: Final = Path(__file__).with_name("store-v1.db")


async def main(clock: VirtualClock) -> None:
    outbox = SqliteOutbox(PLACE, clock, ROOMY, keep=1e9)
    await outbox.open()
    await outbox.start_sending()

    async def put(name: str, chat: int | str, **fields: Any) -> None:  # noqa: ANN401  (a message's own)
        given: dict[str, Any] = {"method": "sendMessage", "params": {"text": name}, "bot": BOT}
        await outbox.put([Message(id=TicketId(name), chat_id=chat, **given | fields)])

    async def claim(name: str) -> Claim:
        [claim] = await outbox.claim(1)
        assert claim.message.id == name
        return claim

    async def send(name: str, chat: int | str, outcome: Outcome, **fields: Any) -> None:  # noqa: ANN401
        await put(name, chat, **fields)
        await outbox.settle([Settlement(await claim(name), outcome)])

    await send("delivered", 1, Delivered({"message_id": 7}), dedup_key="d", dedup_for=1e9)
    await send("dead", 2, Dead("blocked", "Forbidden: bot was blocked by the user"))
    await send("parked", 3, Unknown("timeout"), on_unknown="park")
    await send("retry", 4, Retry(1e6, "502"))
    await send("refused", 5, Refused(1e6))
    await send("migrated", -6, Migrated(-1006))
    await outbox.settle([Settlement(await claim("migrated"), Delivered({"message_id": 8}))])
    await put("cancelled", 7)
    await outbox.cancel([TicketId("cancelled")])
    await put("replaced", 8, coalesce_key="c", not_before=clock.now() + 1e9)
    await put("newer", 8, coalesce_key="c", not_before=clock.now() + 1e9)
    await put("expired", 9, not_before=clock.now() + 1, expires_at=clock.now() + 2)
    await outbox.pause(BOT, 9)
    await clock.sleep(3)
    await outbox.pause(BOT, 10)
    await put("paused", 10, priority="high")
    photo = {"photo": File(content=b"\x89PNG", name="a.png")}
    await put("with a file", 10, method="sendPhoto", params=photo, priority="low", max_attempts=2)
    await outbox.end_turn(await outbox.turn(BOT, -11, "send", 1), Delivered({}))
    await put("sending", 12)
    await claim("sending")
    await clock.sleep(1)
    await put("queued", "@name", expires_at=clock.now() + 1e9)
    connection, outbox.file._connection = outbox.file._connection, None  # noqa: SLF001  (as a crash leaves it)
    assert connection is not None
    connection.close()
    PLACE.with_name(PLACE.name + ".lock").unlink()
    os._exit(0)


if __name__ == "__main__":
    PLACE.unlink(missing_ok=True)
    run(main)
