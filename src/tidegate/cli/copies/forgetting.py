"""`tidegate forget`: erase everything about a chat."""

from tidegate.app import Tidegate
from tidegate.cli import terminal
from tidegate.cli.asking import make_sure
from tidegate.cli.selection import Selection, amount, bot_of, found
from tidegate.cli.stores import using, using_gate
from tidegate.inbound.arrivals import bot_source
from tidegate.inbound.inbox.base import PARKED_AT_MOST, Inbox
from tidegate.model import BotId, ChatId, State
from tidegate.outbox.admission import check_chat


def forget(store: str | None, chat: str, *, bot: int | None, yes: bool, as_json: bool) -> None:
    chat_id, bot_id = check_chat(chat), bot_of(bot)
    known = Selection(states=frozenset(State), bot=bot_id, chat_id=chat_id)
    sending = Selection(states=frozenset({State.SENDING}), bot=bot_id, chat_id=chat_id)
    count = using(store, known.how_many)
    make_sure(f"Erase {found(count, 'message')} to {chat_id} for good, waiting ones too?", yes=yes)

    async def act(gate: Tidegate) -> tuple[int, int, int]:
        erased = await gate.outbox.forget(chat_id, bot_id)
        updates = await _forget_updates(gate.reception.inbox, chat_id, bot_id)
        return erased, updates, await sending.how_many(gate.outbox)

    erased, updates, left = using_gate(store, act)
    if as_json:
        terminal.put_json({"chat_id": chat_id, "erased": erased, "updates": updates, "sending": left})
        return
    terminal.put_line(f"Erased {amount(erased, 'message')} to {chat_id}. Backups still hold what they held.")
    if updates:
        terminal.put_line(f"Erased {amount(updates, 'update')} of it that had been given up.")
    if left:
        terminal.put_line(f"{amount(left, 'message')} being sent stayed: do it again once that has ended.")


async def _forget_updates(inbox: Inbox, chat: ChatId, bot: BotId | None) -> int:
    """Those that were given up. Those that wait are handled soon, and gone then."""
    source = None if bot is None else bot_source(bot)
    parked = await inbox.parked(source, limit=100 * PARKED_AT_MOST)
    meant = [one.arrival for one in parked if one.arrival.lane == str(chat)]
    return sum([await inbox.drop(one.source, one.key) for one in meant])
