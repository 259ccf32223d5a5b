"""`tidegate limits`: show closures, learned limits and outages, and open what a 429 has closed."""

from typing import TYPE_CHECKING, Any, Final

from tidegate.cli import terminal
from tidegate.cli.limits_measure import measure
from tidegate.cli.messages import chat_of
from tidegate.cli.options import AsJson, OfBot, OfChat, Store, command_group
from tidegate.cli.store import known_bots, using_gate
from tidegate.cli.times import short_moment
from tidegate.clock import Clock
from tidegate.model import BotId
from tidegate.outbox.limit_states import CLOSED
from tidegate.outbox.port import LimitState
from tidegate.settings import Settings

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate

app = command_group("Show which bots and chats are closed or slowed down, and open them.")

NOTHING: Final = "Nothing is closed, and no other limit was learned"


@app.command("list")
def show(*, store: Store = None, as_json: AsJson = False) -> None:
    """Show the limits, what 429s have closed and taught, and bots that cannot send."""

    async def look(gate: "Tidegate") -> tuple[list[LimitState], list[str]]:
        health = await gate.core.store.sender_health()
        reasons = () if health is None else health.reasons
        return await gate.outbox.limits(), [one for one in reasons if CLOSED not in one]  # shown anyway

    states, reasons = using_gate(store, look)
    rules, now = Settings.read().rules(), Clock().now()
    report: dict[str, Any] = {
        "bot_rate": str(rules.bot),
        "chat_rate": str(rules.private),
        "reply_burst": rules.burst,
        "group_rate": str(rules.group),
        "limits": [_as_json(state, now) for state in states],
        "sender": reasons,
    }
    terminal.report(
        report,
        f"Allowed: {rules.bot} for a bot, {rules.private} for a chat (replies: {rules.burst} at once),"
        f" {rules.group} for a group",
        *(
            (_line(state, now) for state in states)
            if states
            else ["Nothing is closed, and no other limit was learned"]
        ),
        *reasons,
        as_json=as_json,
    )


@app.command("open")
def open_(*, bot: OfBot = None, chat: OfChat = None, store: Store = None, as_json: AsJson = False) -> None:
    """Open what a 429 has closed: every bot with its chats, one bot, or one chat.

    A bot that cannot send tries at once.

    Learned limits stay. If Telegram still refuses, the next 429 closes again.
    """
    chat_id = chat_of(chat)

    async def act(gate: "Tidegate") -> list[BotId]:
        bots = [each for each in await known_bots(gate) if bot in {None, each}]
        for each in bots:
            await gate.outbox.open_limits(each, chat_id)
        return bots

    bots = using_gate(store, act)
    where = "" if chat_id is None else f", chat {chat_id}"
    terminal.report(
        {"opened": [{"bot": each, "chat_id": chat_id} for each in bots]},
        *(
            [f"Open: bot {each}{where}" for each in bots]
            or ["The store knows no such bot: nothing was opened"]
        ),
        as_json=as_json,
    )


def _as_json(state: LimitState, now: float) -> dict[str, Any]:
    return {
        "bot": state.bot,
        "chat_id": state.chat_id,
        "allowed": None if state.allowed is None else str(state.allowed),
        "closed_for": round(state.closed_for, 1),
        "closed_until": round(now + state.closed_for, 1) if state.closed_for > 0 else None,
        "obstacle": state.obstacle or None,
    }


def _line(state: LimitState, now: float) -> str:
    place = f"bot {state.bot}" if state.chat_id is None else f"bot {state.bot}, chat {state.chat_id}"
    facts = []
    if state.obstacle:
        facts.append(f"cannot send ({state.obstacle})")
    if state.closed_for > 0:
        facts.append(
            f"{CLOSED} for {state.closed_for:.0f} s, until {short_moment(now + state.closed_for, now)}"
        )
    if state.allowed is not None:
        facts.append(f"learned: {state.allowed}")
    return f"{place}: {', '.join(facts)}"


app.command("measure", epilog="[b]Try it:[/b]  tidegate limits measure --chat 1001")(measure)
