"""`tidegate forget`: erase everything about a chat."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.messages import Selection, amount, bot_of, counted
from tidegate.cli.options import AsJson, OfBot, Store, Yes
from tidegate.cli.store import using, using_gate
from tidegate.cli.terminal import confirm
from tidegate.inbound.inbox import MAX_PARKED_PER_SOURCE, Inbox, bot_source
from tidegate.model import BotId, ChatId, State
from tidegate.outbox.admission import check_chat

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate
    from tidegate.outbox.port import Outbox


app = typer.Typer(add_completion=False)

Chat = Annotated[str, typer.Argument(metavar="CHAT", help="A number or @name.")]


# The number of a group begins with a minus, which must not be read as an option.
@app.command(context_settings={"ignore_unknown_options": True})
def forget(
    chat: Chat, *, bot: OfBot = None, yes: Yes = False, store: Store = None, as_json: AsJson = False
) -> None:
    """Erase every message to a chat, waiting or ended. Asks first.

    A message that is being sent stays: run the command again when it has ended. Backups are not touched.
    """
    chat_id, bot_id = check_chat(chat), bot_of(bot)
    known = Selection(states=frozenset(State), bot=bot_id, chat_id=chat_id)
    sending = Selection(states=frozenset({State.SENDING}), bot=bot_id, chat_id=chat_id)

    async def look(outbox: "Outbox") -> int:
        await outbox.settle_crashed()
        return await known.how_many(outbox)

    count = using(store, look)
    confirm(f"Erase {counted(count, 'message')} to {chat_id} for good, waiting ones too?", yes=yes)

    async def act(gate: "Tidegate") -> tuple[int, int, int]:
        erased = await gate.outbox.forget(chat_id, bot_id)
        updates = await _forget_updates(gate.inbox, chat_id, bot_id)
        return erased, updates, await sending.how_many(gate.outbox)

    erased, updates, left = using_gate(store, act)
    lines = [f"Erased {amount(erased, 'message')} to {chat_id}. Backups are unchanged."]
    if updates:
        lines.append(f"Erased {amount(updates, 'parked update')} of it.")
    if left:
        lines.append(f"{amount(left, 'message')} being sent stayed: run the command again when it has ended.")
    found = {"chat_id": chat_id, "erased": erased, "updates": updates, "sending": left}
    terminal.report(found, *lines, as_json=as_json)


async def _forget_updates(inbox: Inbox, chat: ChatId, bot: BotId | None) -> int:
    """Drop the parked updates of a chat. Those that wait are handled soon, and are gone after that."""
    source = None if bot is None else bot_source(bot)
    parked = await inbox.parked(source, limit=100 * MAX_PARKED_PER_SOURCE)
    meant = [one.item for one in parked if one.item.lane == str(chat)]
    return sum([await inbox.drop(one.source, one.key) for one in meant])
