"""`tidegate forget`: erase everything about a chat."""

from tidegate.cli import terminal
from tidegate.cli.messages import Selection, amount, bot_of, counted
from tidegate.cli.store import using, using_gate
from tidegate.cli.terminal import confirm
from tidegate.gate import Tidegate
from tidegate.inbound.inbox import MAX_PARKED_PER_SOURCE, Inbox, bot_source
from tidegate.model import BotId, ChatId, State
from tidegate.outbox.admission import check_chat


def forget_chat(store: str | None, chat: str, *, bot: int | None, yes: bool, as_json: bool) -> None:
    chat_id, bot_id = check_chat(chat), bot_of(bot)
    known = Selection(states=frozenset(State), bot=bot_id, chat_id=chat_id)
    sending = Selection(states=frozenset({State.SENDING}), bot=bot_id, chat_id=chat_id)
    count = using(store, known.how_many)
    confirm(f"Erase {counted(count, 'message')} to {chat_id} for good, waiting ones too?", yes=yes)

    async def act(gate: Tidegate) -> tuple[int, int, int]:
        erased = await gate.outbox.forget(chat_id, bot_id)
        updates = await _forget_updates(gate.handler_registry.inbox, chat_id, bot_id)
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
    parked = await inbox.parked(source, limit=100 * MAX_PARKED_PER_SOURCE)
    meant = [one.item for one in parked if one.item.lane == str(chat)]
    return sum([await inbox.drop(one.source, one.key) for one in meant])
