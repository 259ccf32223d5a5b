"""`tidegate bot add`. The token is written nowhere but, encrypted, to the store."""

import sys
from http import HTTPStatus
from typing import Any

import typer

from tidegate.app import Tidegate
from tidegate.cli import loop, terminal
from tidegate.cli.gates import gate_at, quietly, reached
from tidegate.cli.places import is_redis, place_of
from tidegate.clock import Clock
from tidegate.delivery.botapi import BotApi
from tidegate.delivery.wire import Answer, NoAnswer
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.keys import Keys
from tidegate.roster import TELEGRAM
from tidegate.settings import Settings

CHECK_WITHIN = 20.0  # seconds for getMe to leave; the answer has its own time
NOT_A_BOT = {HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND}


def add(store: str | None, token: str | None, *, api_url: str | None, check: bool, as_json: bool) -> None:
    if api_url is not None and "@" in api_url:
        raise BadInputError(
            "--api-url: an address with a user or a password in it is not taken: leave it out"
        )
    gate = gate_at(store, create=True)
    if is_redis(place_of(store)):
        Keys.of(Settings.read().tidegate_key, None).check()
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
    wire = BotApi(clock)
    try:
        answer = await wire.call(
            token, "getMe", {}, api_url=api_url, deadline=clock.monotonic() + CHECK_WITHIN
        )
    finally:
        await wire.close()
    return known_bot(answer, api_url)


def known_bot(answer: Answer | NoAnswer, api_url: str) -> dict[str, Any]:
    """The bot that answers to getMe, or the error that says why there is none."""
    if isinstance(answer, Answer) and answer.body is not None:
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
