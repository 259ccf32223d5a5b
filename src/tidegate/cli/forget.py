"""`tidegate forget`: erase everything about a chat."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.messages import Selection, amount, bot_of, counted
from tidegate.cli.options import AsJson, OfBot, Store, Yes
from tidegate.cli.store import using, using_gate
from tidegate.cli.terminal import confirm
from tidegate.model import State
from tidegate.outbox.admission import check_chat

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate
    from tidegate.outbox.port import Outbox
    from tidegate.stores.erasure import Erasure


app = typer.Typer(add_completion=False)

Chat = Annotated[str, typer.Argument(metavar="CHAT", help="A number or @name.")]


# The number of a group begins with a minus, which must not be read as an option.
@app.command(context_settings={"ignore_unknown_options": True})
def forget(
    chat: Chat, *, bot: OfBot = None, yes: Yes = False, store: Store = None, as_json: AsJson = False
) -> None:
    """Erase every message to a chat, waiting or ended. Asks first.

    Also erases its updates, conversations, sessions of flows and subscriptions. A file is then written anew,
    so that nothing of it can be found there; processes that write wait meanwhile, seconds for a large file.
    A message that is being sent stays: run the command again when it has ended. Backups are named, not
    touched.
    """
    chat_id, bot_id = check_chat(chat), bot_of(bot)
    known = Selection(states=frozenset(State), bot=bot_id, chat_id=chat_id)
    sending = Selection(states=frozenset({State.SENDING}), bot=bot_id, chat_id=chat_id)

    async def look(outbox: "Outbox") -> int:
        await outbox.settle_crashed()
        return await known.how_many(outbox)

    count = using(store, look)
    confirm(f"Erase {counted(count, 'message')} to {chat_id} for good, waiting ones too?", yes=yes)

    async def act(gate: "Tidegate") -> "tuple[Erasure, int]":
        return await gate.core.store.erase(chat_id, bot_id), await sending.how_many(gate.outbox)

    erased, left = using_gate(store, act)
    lines = [f"Erased {amount(erased.messages, 'message')} to {chat_id}."]
    parts = {
        "update": erased.updates,
        "conversation": erased.conversations,
        "session": erased.sessions,
        "subscription": erased.subscriptions,
    }
    if any(parts.values()):
        also = ", ".join(amount(count, name) for name, count in parts.items() if count)
        lines.append(f"Erased {also} of it.")
    if left:
        lines.append(f"{amount(left, 'message')} being sent stayed: run the command again when it has ended.")
    copies = ", ".join(erased.copies)
    lines.append(
        f"Backups are unchanged. These files may hold what was erased: {copies}"
        if copies
        else "Backups are unchanged."
    )
    found = {
        "chat_id": chat_id,
        "erased": erased.messages,
        **{f"{name}s": count for name, count in parts.items()},
        "sending": left,
        "copies": list(erased.copies),
    }
    terminal.report(found, *lines, as_json=as_json)
