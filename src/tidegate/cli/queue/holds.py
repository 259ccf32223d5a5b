"""`tidegate queue pause` and `resume`."""

from collections.abc import Sequence

from tidegate.app import Tidegate
from tidegate.cli import terminal
from tidegate.cli.selection import chat_of
from tidegate.cli.stores import facts_of, using_gate
from tidegate.errors import BadInputError
from tidegate.model import BotId


def hold(store: str | None, *, bot: int | None, chat: str | None, paused: bool, as_json: bool) -> None:
    chat_id = chat_of(chat)

    async def act(gate: Tidegate) -> list[BotId]:
        bots = which_bots((await facts_of(gate)).bots, bot)
        for each in bots:
            await (gate.outbox.pause if paused else gate.outbox.resume)(each, chat_id)
        return bots

    bots = using_gate(store, act)
    places = [{"bot": each, "chat_id": chat_id} for each in bots]
    if as_json:
        terminal.put_json({"paused" if paused else "resumed": places})
        return
    where = "" if chat_id is None else f", chat {chat_id}"
    for each in bots:
        terminal.put_line(f"{'Paused' if paused else 'Resumed'}: bot {each}{where}")


def which_bots(known: Sequence[BotId], bot: int | None) -> list[BotId]:
    """The one that was named, or all. Raises BadInputError for one that the store has never heard of."""
    if not known:
        raise BadInputError("the store knows no bot yet: there is nothing to pause or resume")
    if bot is None:
        return list(known)
    if bot not in known:
        names = ", ".join(map(str, known))
        raise BadInputError(f"--bot: the store knows no bot {bot}: it knows {names}")
    return [BotId(bot)]
