"""`tidegate bot`: the bots of a store. Their tokens are stored encrypted and shown nowhere."""

import re
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich import box
from rich.table import Table

from tidegate.bots.encryption import TokenCipher
from tidegate.cli import loop, terminal
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, Store, Yes, command_group
from tidegate.cli.store import gate_for, is_redis, open_gate, quietly, store_name, using_gate
from tidegate.cli.terminal import confirm
from tidegate.clock import Clock
from tidegate.delivery.bot_api import BotApiClient
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.model import BotId
from tidegate.outbox.port import OutboxStats
from tidegate.settings import Settings

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate


CHECK_WITHIN: Final = 20.0  # seconds for getMe to leave; the answer has a timeout of its own
NOT_A_BOT: Final = {HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND}
SHOWN_COUNTS: Final = ("waiting", "dead", "parked")
_NUMBER = re.compile(r"(\d{1,15})(?::.*)?", re.DOTALL)

app = command_group("Register, list and remove the bots of a store.")

Token = Annotated[
    str | None,
    typer.Argument(
        metavar="TOKEN",
        help="From @BotFather; - reads it from stdin. Default: TELEGRAM_BOT_TOKEN, or a prompt.",
        show_default=False,
    ),
]
ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api-url",
        metavar="URL",
        help="Address of your own Bot API server; default: as before, at first Telegram's.",
    ),
]
NoCheck = Annotated[bool, typer.Option("--no-check", help="Do not ask Telegram whether the token is valid.")]
Number = Annotated[str, typer.Argument(metavar="ID", help="The bot's number, as shown by bot list.")]


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

    Asks Telegram first whether the token is valid, and registers nothing if it is not. The key comes from
    TIDEGATE_KEY, or from a key file that is created beside the store: back up both, since neither is of use
    without the other.
    """
    if api_url is not None and "@" in api_url:
        raise BadInputError("--api-url: the address must not contain a user or a password")
    gate = gate_for(store, create=True)
    if is_redis(store_name(store)):
        TokenCipher.of(Settings.read().tidegate_key, None).check()
    found = _find_token(token)
    with quietly():
        about = loop.run(_add(gate, store, found, api_url, check=not no_check))
    name = f" (@{about['username']})" if about["username"] else ""
    done = "registered" if about["fresh"] else "registered again"
    terminal.report(about, f"{about['bot']}:…{name} is {done}", as_json=as_json)


@app.command("list")
def list_(*, store: Store = None, as_json: AsJson = False) -> None:
    """List the bots, with how many of their messages wait, are dead or parked. Tokens are never shown."""
    bots = using_gate(store, _bots)
    shown = bots_table(bots) if bots else "No bot is registered: begin with tidegate bot add"
    terminal.report({"bots": bots}, shown, as_json=as_json)


@app.command()
def remove(number: Number, *, yes: Yes = False, store: Store = None, as_json: AsJson = False) -> None:
    """Remove a bot and its token. Asks first if messages of the bot wait: they could not be sent.

    Messages that wait stay. Without a token they die when their turn comes, and can be replayed.
    """
    bot = number_of(number)
    known = {each["bot"]: each for each in using_gate(store, _bots)}
    if bot not in known:
        names = ", ".join(f"{each}:…" for each in known) or "none"
        raise BadInputError(f"bot {bot} is not registered in this store: it has {names}")
    waiting = known[bot]["waiting"]
    if waiting:
        subject = amount(waiting, f"message of {bot}:… waits", f"messages of {bot}:… wait")
        confirm(f"{subject} and could not be sent without its token. Remove the bot?", yes=yes)
    using_gate(store, lambda gate: gate.remove_bot(bot))
    left = amount(waiting, "of its messages waits", "of its messages wait")
    line = f"{bot}:… is removed" + (f"; {left}" if waiting else "")
    terminal.report({"bot": bot, "waiting": waiting}, line, as_json=as_json)


def _find_token(given: str | None) -> str:
    if given == "-":
        return _ask_token() if sys.stdin.isatty() else _read_token()
    if given is not None:
        terminal.note(
            "tidegate: warning: a token given as an argument stays in the shell's history, and others on "
            "this machine can see it; next time leave it out, or write - and pass it on stdin"
        )
        return given.strip()
    known = Settings.read().telegram_bot_token
    if known is not None:
        return known.get_secret_value().strip()
    if sys.stdin.isatty():
        return _ask_token()
    raise BadInputError("no token: set TELEGRAM_BOT_TOKEN, or pass it on stdin to tidegate bot add -")


def _ask_token() -> str:
    token: str = typer.prompt("Token, from @BotFather (it is not shown)", hide_input=True, err=True)
    return token.strip()


def _read_token() -> str:
    return sys.stdin.buffer.readline().decode(errors="replace").strip()


async def _add(
    gate: "Tidegate", store: str | None, token: str, api_url: str | None, *, check: bool
) -> dict[str, Any]:
    async with open_gate(gate, store):
        before = {bot.id for bot in gate.bots()}
        # In memory first: an unusable token or address is refused before it is sent anywhere.
        bot = gate.add_bot(token, api_url=api_url)
        [address] = [info.api_url for info in gate.bots() if info.id == bot.id]
        about = await _ask_telegram(token, address) if check else {}
        await gate.register_bot(token, api_url=api_url)
    return {
        "bot": bot.id,
        "username": about.get("username"),
        "api_url": address,
        "fresh": bot.id not in before,
    }


async def _ask_telegram(token: str, api_url: str) -> dict[str, Any]:
    """Call getMe. Not through the gate: a worker may be the sender, and getMe is not limited."""
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
    """Return the bot from the answer to getMe. Raises an error that says why there is none."""
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
        f"{api_url} could not be asked about this token ({word}): check the address and the network, "
        "or skip the check with --no-check",
        method="getMe",
        chat_id=None,
    )


async def _bots(gate: "Tidegate") -> list[dict[str, Any]]:
    by_bot = await gate.outbox.stats_by_bot()
    return [
        {
            "bot": bot.id,
            "api_url": bot.api_url,
            **{name: getattr(by_bot.get(bot.id, OutboxStats()), name) for name in SHOWN_COUNTS},
        }
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


def number_of(text: str) -> BotId:
    """Read a bot's number, `42` or `42:…`."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise BadInputError("ID must be a bot's number, such as 42: see tidegate bot list")
    return BotId(int(match[1]))
