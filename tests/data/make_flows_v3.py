# mypy: ignore-errors
"""Makes flows-v3.db: sessions as version 3 kept them, as aiogram conversations and made-up subscriptions.

Run once with the code that had that layout; later versions must carry the sessions over, so it is not made
again. In it: Alice waits for her payment, Bob has said nothing yet, the refund of Carol was decided and not
said, Dan was invited once and has cancelled, Eve is asked in a flow without any timer.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tidegate.adapters.aiogram.flows.sessions import StorageSessions
from tidegate.adapters.aiogram.sqlite_storage import SqliteStorage
from tidegate.errors import StoreAwayError
from tidegate.flows import Flow, FlowBuilder
from tidegate.flows.events import Command, Press
from tidegate.flows.executor import Executor, LocalTurns, Place, WorkContext
from tidegate.outbox.sqlite.file import StoreFile
from tidegate.polling.poller import Poller
from tidegate.polling.store.sqlite import SqliteSubscriptions
from tidegate.sim.virtual import VirtualClock, run

PLACE: Final = Path(__file__).with_name("flows-v3.db")
ALICE, BOB, CAROL, DAN, EVE = (Place(42, user, user) for user in range(1, 6))


def shop() -> Flow:
    flow = FlowBuilder("shop", lifetime=7_200)
    flow.command("/start", to="start").command("/cancel", to="cancelled")
    flow.state("start", say="Welcome!").button("Order", to="ordering")
    flow.state("ordering").run("create_order", done="waiting", failed="cancelled", save=("order_id",))
    waiting = flow.state("waiting", say="Pay {order_id}, please.").timeout(900, say="Still there?")
    waiting.poll("payment", key="order_id", met="paid").on("signal:refund", to="cancelled")
    flow.final("paid", say="Paid: {order_id}.")
    flow.final("cancelled", say="Cancelled.")
    return flow.build()


def survey() -> Flow:
    flow = FlowBuilder("survey")
    flow.command("/survey", to="ask")
    flow.state("ask", say="Your name?").on("text", to="end", save="name")
    flow.final("end", say="Thanks, {name}.")
    return flow.build()


class Gate:
    """A gate that takes every message, but those to Carol once she is refunded."""

    def __init__(self, file: StoreFile, clock: VirtualClock) -> None:
        self.clock = clock
        self.outbox = object()
        self.file = file
        self.data: dict[int, str] = {}  # of the last button, by chat
        self.is_away = False

    def subscriptions(self, name: str) -> SqliteSubscriptions:
        return SqliteSubscriptions(self.file, self.clock, name)

    def poll(self, poller: Poller) -> None:
        """It does not run here."""

    async def send(self, *, bot: int | None = None, **fields: Any) -> None:  # noqa: ANN401, ARG002
        if self.is_away:
            raise StoreAwayError("away")
        if "reply_markup" in fields:
            self.data[fields["chat_id"]] = fields["reply_markup"]["inline_keyboard"][0][0]["callback_data"]

    async def call(self, method: str, params: dict[str, Any], *, bot: int | None = None) -> None: ...


async def create_order(context: WorkContext) -> dict[str, str]:
    return {"order_id": f"TG-{context.user}"}


async def check(_: object) -> dict[str, bool]:
    return {}


async def main(clock: VirtualClock) -> None:
    file = StoreFile(PLACE)
    await file.open()

    async def opened() -> StoreFile:
        return file

    gate, storage = Gate(file, clock), SqliteStorage(opened, clock)
    polling = {"batch_check_fn": check, "interval": 60}
    shopping = Executor(shop(), gate, work={"create_order": create_order}, batch_polling=polling)
    asking = Executor(survey(), gate)
    await shopping.start(StorageSessions(storage, "shop"), LocalTurns())
    await asking.start(StorageSessions(storage, "survey"), LocalTurns())

    def cause(number: int) -> dict[str, Any]:
        return {"id": f"u{number}", "at": clock.now()}

    for number, place in enumerate((ALICE, BOB, CAROL)):
        await shopping.handle(place, Command("/start", **cause(number)))
        if place != BOB:
            await shopping.handle(place, Press(gate.data[place.chat], "q", **cause(10 + number)))
    await clock.sleep(5)
    await shopping.begin(DAN, {}, event="campaign-7")
    await shopping.handle(DAN, Command("/cancel", **cause(20)))
    await asking.handle(EVE, Command("/survey", **cause(21)))
    gate.is_away = True
    with suppress(StoreAwayError):
        await shopping.signal(CAROL, "refund")
    await file.close()  # as if this process had died: neither of them is stopped


if __name__ == "__main__":
    PLACE.unlink(missing_ok=True)
    run(main)
