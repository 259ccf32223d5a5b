"""`tidegate limits`: show limits, set those of one bot, and open what a 429 has closed."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from tidegate.cli import terminal
from tidegate.cli.limits_measure import measure
from tidegate.cli.messages import chat_of
from tidegate.cli.options import AsJson, OfBot, OfChat, Store, a_bots_number, command_group
from tidegate.cli.store import using_gate
from tidegate.cli.times import short_moment
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import BotId, BotLimits, Rate
from tidegate.ops.reports import LIMIT_NAMES, known_bots
from tidegate.outbox.limit_states import CLOSED
from tidegate.outbox.port import LimitState
from tidegate.pacing.rules import Rules, above_published, check_limits, own_rules
from tidegate.settings import Settings

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate

app = command_group("Show and set limits; show what is closed or slowed down, and open it.")

NOTHING: Final = "Nothing is closed, and no other limit was learned"
OPTIONS: Final = {"bot": "--rate", "private": "--chat-rate", "group": "--group-rate"}

ThisBot = Annotated[
    int, typer.Option("--bot", metavar="N", callback=a_bots_number, help="The bot, by its number.")
]
BotRate = Annotated[
    str | None, typer.Option("--rate", metavar="N/S", help="All its calls: 25/1 is 25 in a second.")
]
ChatRate = Annotated[
    str | None, typer.Option("--chat-rate", metavar="N/S", help="Each private chat, such as 1/1.")
]
GroupRate = Annotated[
    str | None, typer.Option("--group-rate", metavar="N/S", help="Each group and channel, such as 15/60.")
]


@app.command("list")
def show(*, store: Store = None, as_json: AsJson = False) -> None:
    """Show the limits, what 429s have closed and taught, and bots that cannot send."""

    async def look(gate: "Tidegate") -> tuple[list[LimitState], dict[BotId, BotLimits], list[str]]:
        health = await gate.core.store.sender_health()
        reasons = () if health is None else health.reasons
        others = [one for one in reasons if CLOSED not in one]  # closures are shown anyway
        return await gate.outbox.limits(), await gate.own_limits(), others

    states, own, reasons = using_gate(store, look)
    rules, now = Settings.read().rules(), Clock().now()
    report: dict[str, Any] = {
        "bot_rate": str(rules.bot),
        "chat_rate": str(rules.private),
        "reply_burst": rules.burst,
        "group_rate": str(rules.group),
        "own": [_own_as_json(bot, limits, rules) for bot, limits in sorted(own.items())],
        "limits": [_as_json(state, now) for state in states],
        "sender": reasons,
    }
    terminal.report(
        report,
        f"Allowed: {rules.bot} for a bot, {rules.private} for a chat (replies: {rules.burst} at once),"
        f" {rules.group} for a group",
        *(_own_line(bot, limits) for bot, limits in sorted(own.items())),
        *((_line(state, now) for state in states) if states else [NOTHING]),
        *reasons,
        as_json=as_json,
    )


@app.command("set", epilog="[b]Try it:[/b]  tidegate limits set --bot 42 --rate 25/1 --group-rate 15/60")
def set_(
    *,
    bot: ThisBot,
    rate: BotRate = None,
    chat_rate: ChatRate = None,
    group_rate: GroupRate = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Set limits of one bot: at once, for every process, until they are reset.

    What is not named stays as it is. What was sent lately counts, so that the new limit is never exceeded;
    a longer window begins full: the bot pauses for a moment.
    """
    texts = {"bot": rate, "private": chat_rate, "group": group_rate}
    given = {name: Rate.parse(text) for name, text in texts.items() if text is not None}
    if not given:
        raise BadInputError("no limit is given: add --rate, --chat-rate or --group-rate, as --rate 25/1")

    changes = check_limits(BotLimits(**given))

    async def act(gate: "Tidegate") -> BotLimits:
        own = msgspec.structs.replace((await gate.own_limits()).get(BotId(bot), BotLimits()), **given)
        await gate.outbox.set_limits(BotId(bot), own)
        return own

    own = using_gate(store, act)
    rules = Settings.read().rules()
    above = [OPTIONS[name] for name in above_published(changes)]
    note = f"{', '.join(above)}: faster than Telegram publishes: right if it was measured, else it draws 429s"
    terminal.report(
        _own_as_json(BotId(bot), own, rules),
        _own_line(BotId(bot), own),
        *([note] if above else []),
        as_json=as_json,
    )


@app.command("reset", epilog="[b]Try it:[/b]  tidegate limits reset --bot 42")
def reset(*, bot: ThisBot, store: Store = None, as_json: AsJson = False) -> None:
    """End the limits that were set for a bot: those of the settings hold again, at once."""

    async def act(gate: "Tidegate") -> bool:
        had = BotId(bot) in await gate.own_limits()
        await gate.outbox.set_limits(BotId(bot), BotLimits())
        return had

    had, rules = using_gate(store, act), Settings.read().rules()
    holds = f"{rules.bot} in all, {rules.private} for a chat, {rules.group} for a group"
    text = f"bot {bot}: {holds}, as in the settings"
    terminal.report(
        _own_as_json(BotId(bot), BotLimits(), rules),
        text if had else f"bot {bot} had no limits of its own: nothing was changed",
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


def _own_as_json(bot: BotId, own: BotLimits, rules: Rules) -> dict[str, Any]:
    """The limits of a bot, and which of them are its own."""
    holds = own_rules(rules, own)
    return {
        "bot": bot,
        "bot_rate": str(holds.bot),
        "chat_rate": str(holds.private),
        "group_rate": str(holds.group),
        "own": [LIMIT_NAMES[name] for name in own.set_ones],
    }


def _own_line(bot: BotId, own: BotLimits) -> str:
    where = {"bot": "in all", "private": "for a chat", "group": "for a group"}
    given = [f"{rate} {where[name]}" for name, rate in own.set_ones.items()]
    return f"bot {bot} has its own: {', '.join(given)}"


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
