"""`tidegate bot`: the bots of a store. Their tokens are stored encrypted and shown nowhere."""

import re
import sys
from http import HTTPStatus
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from tidegate.bots.encryption import TokenCipher
from tidegate.bots.registry import TELEGRAM
from tidegate.cli import loop, terminal
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, Store, Yes
from tidegate.cli.store import counts_of, gate_at, is_redis, place_of, quietly, reached, using_gate
from tidegate.cli.terminal import confirm
from tidegate.clock import Clock
from tidegate.delivery.bot_api import BotApiClient
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.gate import Tidegate
from tidegate.model import BotId
from tidegate.settings import Settings

app = typer.Typer(help="Say which bots a store sends for.")

Token = Annotated[
    str | None,
    typer.Argument(
        metavar="TOKEN",
        help="From @BotFather. - reads it from stdin; without it TELEGRAM_BOT_TOKEN is taken, or it asks.",
        show_default=False,
    ),
]
ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api-url", metavar="URL", help="Of a Bot API server of your own; Telegram's if not given."
    ),
]
NoCheck = Annotated[bool, typer.Option("--no-check", help="Do not ask Telegram whether the token is good.")]
Number = Annotated[str, typer.Argument(metavar="ID", help="The bot's number, as bot list shows it.")]


@app.callback(invoke_without_command=True)
def bot(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    epilog="[b]Try it:[/b]  tidegate bot add - < token.txt  ·  TELEGRAM_BOT_TOKEN=… tidegate bot add"
)
def add(
    token: Token = None,
    *,
    api_url: ApiUrl = None,
    no_check: NoCheck = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Register a bot, or give it a new token. The store keeps the token encrypted.

    Asks Telegram first whether the token is good, and registers nothing if it is not. The key is that of
    TIDEGATE_KEY, or of a file beside the store that is made now: a backup of one is of no use without the
    other.
    """
    add_bot(store, token, api_url=api_url, check=not no_check, as_json=as_json)


@app.command("list")
def list_(*, store: Store = None, as_json: AsJson = False) -> None:
    """List the bots, with how much of theirs waits or is dead. Tokens are never shown."""
    list_bots(store, as_json=as_json)


@app.command()
def remove(number: Number, *, yes: Yes = False, store: Store = None, as_json: AsJson = False) -> None:
    """Forget a bot and its token. Asks first while messages of its own wait: they could not be sent."""
    remove_bot(store, number, yes=yes, as_json=as_json)


CHECK_WITHIN = 20.0  # seconds for getMe to leave; the answer has its own time
NOT_A_BOT = {HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND}


def add_bot(store: str | None, token: str | None, *, api_url: str | None, check: bool, as_json: bool) -> None:
    if api_url is not None and "@" in api_url:
        raise BadInputError(
            "--api-url: an address with a user or a password in it is not taken: leave it out"
        )
    gate = gate_at(store, create=True)
    if is_redis(place_of(store)):
        TokenCipher.of(Settings.read().tidegate_key, None).check()
    found = _find_token(token)
    with quietly():
        report = loop.run(_add(gate, store, found, api_url or TELEGRAM, check=check))
    if as_json:
        terminal.put_json(report)
        return
    name = f" (@{report['username']})" if report["username"] else ""
    terminal.put_line(f"{report['bot']}:…{name} is {'registered' if report['fresh'] else 'registered anew'}")


def _find_token(given: str | None) -> str:
    if given == "-":
        return _asked() if sys.stdin.isatty() else _read()
    if given is not None:
        terminal.note(
            "tidegate: warning: a token given as an argument stays in the shell's history, and others on "
            "this machine can see it; next time leave it out, or write - and give it on stdin"
        )
        return given.strip()
    known = Settings.read().telegram_bot_token
    if known is not None:
        return known.get_secret_value().strip()
    if sys.stdin.isatty():
        return _asked()
    raise BadInputError(
        "no token: set TELEGRAM_BOT_TOKEN, or write `tidegate bot add -` and give it on stdin"
    )


def _asked() -> str:
    token: str = typer.prompt("Token, from @BotFather (it is not shown)", hide_input=True, err=True)
    return token.strip()


def _read() -> str:
    return sys.stdin.buffer.readline().decode(errors="replace").strip()


async def _add(gate: Tidegate, store: str | None, token: str, api_url: str, *, check: bool) -> dict[str, Any]:
    async with reached(gate, store):
        before = {bot.id for bot in gate.bots()}
        # In memory first: a token or an address that cannot be used is found before it goes anywhere.
        bot = gate.add_bot(token, api_url=api_url)
        about = await _ask_telegram(token, api_url) if check else {}
        await gate.register_bot(token, api_url=api_url)
    username = about.get("username")
    return {
        "bot": bot.id,
        "username": username,
        "api_url": api_url.rstrip("/"),
        "fresh": bot.id not in before,
    }


async def _ask_telegram(token: str, api_url: str) -> dict[str, Any]:
    """What Telegram says of the bot. Not through the gate: a worker may be its sender; and getMe is free."""
    clock = Clock()
    wire = BotApiClient(clock)
    try:
        answer = await wire.call(
            token, "getMe", {}, api_url=api_url, deadline=clock.monotonic() + CHECK_WITHIN
        )
    finally:
        await wire.close()
    return known_bot(answer, api_url)


def known_bot(answer: ApiAnswer | NoAnswer, api_url: str) -> dict[str, Any]:
    """The bot that answers to getMe, or the error that says why there is none."""
    if isinstance(answer, ApiAnswer) and answer.body is not None:
        result = answer.body.get("result")
        if answer.body.get("ok") and isinstance(result, dict):
            return result
        if answer.status in NOT_A_BOT:
            raise BadInputError(
                f"{api_url} knows no bot with this token ({answer.body.get('description')}): copy it again "
                "from @BotFather, which also makes a new one with /revoke"
            )
    word = answer.reason if isinstance(answer, NoAnswer) else f"status {answer.status}"
    raise NotDeliveredError(
        f"{api_url} could not be asked about this token ({word}): look at the address and the network, "
        "or add it unseen with --no-check",
        method="getMe",
        chat_id=None,
    )


SHOWN_COUNTS = ("waiting", "dead", "parked")
_NUMBER = re.compile(r"(\d{1,15})(?::.*)?", re.DOTALL)


def list_bots(store: str | None, *, as_json: bool) -> None:
    bots = using_gate(store, _bots)
    if as_json:
        terminal.put_json({"bots": bots})
    elif bots:
        terminal.put(bots_table(bots))
    else:
        terminal.put_line("No bot is registered: begin with tidegate bot add")


async def _bots(gate: Tidegate) -> list[dict[str, Any]]:
    counts = await counts_of(gate)
    return [
        {"bot": bot.id, "api_url": bot.api_url, **{name: counts[bot.id, name] for name in SHOWN_COUNTS}}
        for bot in gate.bots()
    ]


def bots_table(bots: list[dict[str, Any]]) -> Table:
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    rows.add_column("bot", no_wrap=True)
    rows.add_column("address", overflow="fold")
    for name in SHOWN_COUNTS:
        rows.add_column(name, justify="right", no_wrap=True)
    for bot in bots:
        rows.add_row(f"{bot['bot']}:…", bot["api_url"], *(f"{bot[name]:,}" for name in SHOWN_COUNTS))
    return rows


def remove_bot(store: str | None, number: str, *, yes: bool, as_json: bool) -> None:
    """What waits for the bot stays; without a token it dies when its turn comes, and can be replayed."""
    bot = number_of(number)
    known = {each["bot"]: each for each in using_gate(store, _bots)}
    if bot not in known:
        names = ", ".join(f"{each}:…" for each in known) or "none"
        raise BadInputError(f"bot {bot} is not registered in this store: it has {names}")
    waiting = known[bot]["waiting"]
    if waiting:
        subject = f"{amount(waiting, 'message')} of {bot}:… {'waits' if waiting == 1 else 'wait'}"
        confirm(f"{subject} and could not be sent without its token. Remove the bot?", yes=yes)
    using_gate(store, lambda gate: gate.remove_bot(bot))
    if as_json:
        terminal.put_json({"bot": bot, "waiting": waiting})
    else:
        left = amount(waiting, "of its messages waits", "of its messages wait")
        terminal.put_line(f"{bot}:… is removed" + (f"; {left}" if waiting else ""))


def number_of(text: str) -> BotId:
    """`42`, or `42:…` as it is shown."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise BadInputError("ID must be a bot's number, such as 42: see tidegate bot list")
    return BotId(int(match[1]))
