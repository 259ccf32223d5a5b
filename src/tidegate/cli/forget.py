"""`tidegate forget`: erase everything about a chat."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.messages import COUNTED, Selection, amount, bot_of, counted
from tidegate.cli.options import AsJson, OfBot, Store, Yes
from tidegate.cli.store import known_bot, using_gate
from tidegate.cli.terminal import confirm
from tidegate.database import data_file
from tidegate.history import LARGEST_PAGE
from tidegate.model import BotId, ChatId, State
from tidegate.outbox.admission import check_chat

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate
    from tidegate.stores.erasure import Erasure


app = typer.Typer(add_completion=False)

Chat = Annotated[str, typer.Argument(metavar="CHAT", help="A number or @name.")]


# The number of a group begins with a minus, which must not be read as an option.
@app.command(context_settings={"ignore_unknown_options": True})
def forget(
    chat: Chat, *, bot: OfBot = None, yes: Yes = False, store: Store = None, as_json: AsJson = False
) -> None:
    """Erase every message to a chat, waiting or ended. Asks first.

    Also erases its history, reminders, jobs, rows of uploaded audiences, updates, conversations, sessions of
    flows and subscriptions. A file is then written anew, so that nothing of it can be found there; processes
    that write wait meanwhile, seconds for a large file.
    A message that is being sent stays: run the command again when it has ended. Backups are named, not
    touched.
    """
    chat_id, bot_id = check_chat(chat), bot_of(bot)
    known = Selection(states=frozenset(State), bot=bot_id, chat_id=chat_id)
    sending = Selection(states=frozenset({State.SENDING}), bot=bot_id, chat_id=chat_id)

    async def look(gate: "Tidegate") -> dict[str, int]:
        await gate.outbox.settle_crashed()
        return {
            "message": await known.how_many(gate.outbox),
            "reminder": await _count_reminders(gate, chat_id, bot_id),
            "job": await _count_jobs(gate, chat_id, bot_id),
            "recorded message": await _count_recorded(gate, chat_id, bot_id),
            "audience row": await gate.core.audiences.count(chat_id, bot_id),
        }

    found_things = using_gate(store, look)
    what = " and ".join(
        counted(count, thing) for thing, count in found_things.items() if count or thing == "message"
    )
    confirm(f"Erase {what} to {chat_id} for good, waiting ones too?", yes=yes)

    async def act(gate: "Tidegate") -> "tuple[Erasure, int, int, int, int, int]":
        await _forget_answers(gate)
        # Reminders, jobs and broadcasts first: they put messages.
        removed = await gate.reminders.forget(chat_id, known_bot(gate, bot), rewrite=True)
        jobs = await gate.jobs.forget(chat_id, known_bot(gate, bot), rewrite=True)
        rows = await gate.core.audiences.forget(chat_id, bot_id, rewrite=True)
        erased = await gate.core.store.erase(chat_id, bot_id)
        recorded = await gate.history.forget(chat_id, bot_id, rewrite=True)  # last: messages end before
        return erased, await sending.how_many(gate.outbox), removed, jobs, rows, recorded

    erased, left, removed, jobs, rows, recorded = using_gate(store, act)
    lines = [f"Erased {amount(erased.messages, 'message')} to {chat_id}."]
    parts = {
        "reminder": removed,
        "job": jobs,
        "recorded message": recorded,
        "audience row": rows,
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
    copies = [*erased.copies, *_copies_of_data(erased.copies)]
    lines.append(
        f"Backups are unchanged. These files may hold what was erased: {', '.join(copies)}"
        if copies
        else "Backups are unchanged."
    )
    found = {
        "chat_id": chat_id,
        "erased": erased.messages,
        **{f"{name.replace(' ', '_')}s": count for name, count in parts.items()},
        "sending": left,
        "copies": copies,
    }
    terminal.report(found, *lines, as_json=as_json)


def _copies_of_data(stores: Iterable[str]) -> list[str]:
    """Return the files beside other stores in which their reminders and jobs are."""
    files = [data_file(store) for store in stores]
    return [str(file) for file in files if file is not None and file.is_file()]


async def _forget_answers(gate: "Tidegate") -> None:
    """Erase what the HTTP API has answered: it is kept for a day, for requests that are repeated."""
    if not await gate.history.exist():
        return
    from tidegate.database.idempotency import SqlIdempotency  # noqa: PLC0415  (an extra)

    await gate.database.open()
    if await SqlIdempotency(lambda: gate.database).forget():
        await gate.database.rewrite()


async def _count_reminders(gate: "Tidegate", chat_id: ChatId, bot: BotId | None) -> int:
    """Count the reminders of a chat, up to COUNTED + 1."""
    if not await gate.reminders.exist():
        return 0
    whose = known_bot(gate, bot)
    return len(await gate.reminders.list(chat_id=chat_id, bot=whose, limit=COUNTED + 1))


async def _count_jobs(gate: "Tidegate", chat_id: ChatId, bot: BotId | None) -> int:
    """Likewise, the jobs that tell a chat."""
    if not await gate.jobs.exist():
        return 0
    return len(await gate.jobs.list(chat_id=chat_id, bot=known_bot(gate, bot), limit=COUNTED + 1))


async def _count_recorded(gate: "Tidegate", chat_id: ChatId, bot: BotId | None) -> int:
    """Likewise, the messages of a chat in the history, page by page."""
    found, cursor = 0, None
    while found <= COUNTED:
        page = await gate.history.list(chat_id=chat_id, bot=bot, limit=LARGEST_PAGE, cursor=cursor)
        found, cursor = found + len(page.messages), page.cursor
        if cursor is None:
            break
    return found
