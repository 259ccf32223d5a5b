"""`tidegate forget`: erase everything about a chat."""

from tidegate.cli import terminal
from tidegate.cli.asking import make_sure
from tidegate.cli.selection import Selection, amount, bot_of, found
from tidegate.cli.stores import using
from tidegate.model import State
from tidegate.outbox.admission import check_chat
from tidegate.outbox.base import Outbox


def forget(store: str | None, chat: str, *, bot: int | None, yes: bool, as_json: bool) -> None:
    chat_id, bot_id = check_chat(chat), bot_of(bot)
    known = Selection(states=frozenset(State), bot=bot_id, chat_id=chat_id)
    sending = Selection(states=frozenset({State.SENDING}), bot=bot_id, chat_id=chat_id)
    count = using(store, known.how_many)
    make_sure(f"Erase {found(count, 'message')} to {chat_id} for good, waiting ones too?", yes=yes)

    async def act(outbox: Outbox) -> tuple[int, int]:
        erased = await outbox.forget(chat_id, bot_id)
        return erased, await sending.how_many(outbox)

    erased, left = using(store, act)
    if as_json:
        terminal.put_json({"chat_id": chat_id, "erased": erased, "sending": left})
        return
    terminal.put_line(f"Erased {amount(erased, 'message')} to {chat_id}. Backups still hold what they held.")
    if left:
        terminal.put_line(f"{amount(left, 'message')} being sent stayed: do it again once that has ended.")
