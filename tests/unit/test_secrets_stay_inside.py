"""Tokens go in by every public entry; whatever is written by then is searched for them."""

import asyncio
import hashlib
import hmac
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.stores import FAST
from tidegate import HookEvent, Tidegate
from tidegate.cli import main
from tidegate.cli.app import COMMANDS
from tidegate.delivery.transport import ApiAnswer, BotApiTransport, NoAnswer
from tidegate.errors import TidegateError
from tidegate.model import State
from tidegate.settings import Settings
from tidegate.sim.virtual_time import VirtualClock, VirtualLoop
from unit.inbound.http_caller import call, secret_header, update

TOKEN: Final = "42:AAEEqwertyuiopasdfghjklzxcvbnm-_123"
FRAGMENT: Final = "AAEEqw"  # of the token: a table would wrap it
PASSWORD: Final = "correct-horse-battery"
HOOK_SECRET: Final = "whsec_of_the_shop_0123456789"
KEY: Final = "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE="

url_safe = st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
tokens = st.builds("{}:{}".format, st.integers(1, 10**10), st.text(url_safe, min_size=35, max_size=35))


class EchoingProxy(BotApiTransport):
    """A proxy that quotes the address of the call in whatever it answers."""

    def __init__(self) -> None:
        self.answered = 0

    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any],
        *,
        api_url: str,
        deadline: float,  # noqa: ARG002
        **told: object,  # noqa: ARG002
    ) -> ApiAnswer | NoAnswer:
        url = f"{api_url}/bot{token}/{method}"
        self.answered += 1
        match params.get("chat_id"):
            case 1:
                return ApiAnswer(400, {"ok": False, "error_code": 400, "description": f"no POST at {url}"})
            case 2:
                return ApiAnswer(
                    403, {"ok": False, "error_code": 403, "description": f"{url}: bot was blocked"}
                )
            case 3:
                raise ValueError(f"cannot connect to {url}")
            case _:
                return ApiAnswer(200, {"ok": True, "result": {"message_id": 1}})

    async def close(self) -> None: ...


class Output:
    """Everything that was logged, and everything that is in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []

    def holding(self, secret: str) -> list[str]:
        kept = re.compile(re.escape(secret).encode())
        found = [line for line in self.lines if secret in line]
        return found + [
            str(path) for path in self.folder.rglob("*") if path.is_file() and kept.search(path.read_bytes())
        ]


@contextmanager
def everything_logged(output: Output) -> Iterator[None]:
    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            output.lines.append(self.format(record))
            output.lines.append(str(vars(record)))

    collector, logger = Collector(), logging.getLogger("tidegate")
    before = logger.level
    logger.addHandler(collector)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(collector)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(token=tokens)
def test_a_token_that_goes_in_by_any_entry_of_the_gate_is_in_no_log_and_no_file(token: str) -> None:
    with ExitStack() as stack:
        output = Output(Path(stack.enter_context(tempfile.TemporaryDirectory(dir=FAST))))
        stack.enter_context(everything_logged(output))
        runner = stack.enter_context(asyncio.Runner(loop_factory=VirtualLoop))

        runner.run(_use_every_entry(token, output))

        secret = token.partition(":")[2][:20]
        assert output.lines
        assert output.holding(secret) == []
        assert output.holding(HOOK_SECRET) == []
        assert output.holding(PASSWORD) == []


async def _use_every_entry(token: str, output: Output) -> None:  # noqa: C901  (there are many)
    clock, wire = VirtualClock(asyncio.get_running_loop()), EchoingProxy()
    store = output.folder / "tidegate.db"
    gate = Tidegate(store, clock=clock, wire=wire, settings=Settings(tidegate_key=None))
    say = output.lines.append

    @gate.on_update
    async def handle(bot: int, _update: object) -> None:
        raise RuntimeError(
            f"{bot}: GET https://proxy/bot{token}/getMe failed, http://me:{PASSWORD}@proxy:3128"
        )

    @gate.on_hook("shop", HOOK_SECRET, scheme="github", attempts=1)
    async def sold(event: HookEvent) -> None:
        raise RuntimeError(f"{event.id}: {token} with {HOOK_SECRET}")

    app = gate.asgi()
    for wrong in (f"{token}!", f"x{token}", None):
        with suppress(TidegateError, TypeError):
            gate.add_bot(wrong)  # type: ignore[arg-type]
    for api_url in (
        f"https://proxy/bot{token}",
        f"ftp://{token}",
        f"https://me:{PASSWORD}@proxy/bot{token}/x",
    ):
        with pytest.raises(TidegateError) as refused:
            gate.add_bot(token, api_url=api_url)
        say(repr(refused.value))
    await app.start()
    try:
        bot = await gate.register_bot(token)
        say(repr((gate, gate.bots(), bot, gate.settings, gate.core.sender.bots, gate.core.registry)))
        tickets = [await gate.send(bot=bot, chat_id=chat, text="hello") for chat in (1, 2, 4)]
        for ticket in tickets:
            with suppress(TidegateError):
                await ticket.delivered(60)
        records = await gate.outbox.records(states=frozenset(State))
        say(repr(records))
        assert {record.state for record in records} >= {State.DEAD, State.DELIVERED}
        for method, params in (
            ("sendMessage", {"chat_id": 1, "text": "x"}),
            (f"bot{token}/sendMessage", {"chat_id": 4}),
            ("sendMessage", {"chat_id": token, "text": "x"}),
        ):
            with suppress(Exception):
                await gate.call(method, params, bot=bot, max_wait=1.0)
        for fields in ({"chat_id": token, "text": "x"}, {"chat_id": 4, "text": "x", "priority": token}):
            with pytest.raises(TidegateError) as refused:
                await gate.send(bot=bot, **fields)
            say(repr(refused.value))
        for name in (token, f"{token}/x"):
            with suppress(TidegateError):
                gate.upstream(f"https://{name}@host")
        secret = gate.core.handlers.secret_of(bot.id) or ""
        for path in (f"/webhook/telegram/{token}", f"/bot{token}/x", f"/hooks/{token}", "/hooks/shop"):
            await call(app, path, update(1), secret_header("wrong"))
        await call(app, f"/webhook/telegram/{bot.id}", update(2), secret_header(secret))
        body = b'{"order": 1}'
        signature = hmac.new(HOOK_SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Delivery": "sold-1"}
        assert (await call(app, "/hooks/shop", body, headers)).status == 200
        while len(parked := await gate.inbox.parked()) < 2:
            await clock.sleep(1.0)
        say(repr(parked))
        assert {item.item.key for item in parked} == {"2", "sold-1"}
        assert secret not in "".join(output.lines)
    finally:
        await app.stop()


def test_a_token_in_the_text_of_a_message_is_kept_as_it_is_and_never_logged(tmp_path: Path) -> None:
    """A message is the user's own content: it is delivered as it was given."""
    output, text = Output(tmp_path), f"your token is {TOKEN}"

    async def send() -> str:
        gate = Tidegate(
            tmp_path / "tidegate.db", clock=VirtualClock(asyncio.get_running_loop()), wire=EchoingProxy()
        )
        gate.add_bot("7:" + "x" * 35)
        async with gate:
            ticket = await gate.send(chat_id=1, text=text)
            async with gate.worker():
                with suppress(TidegateError):
                    await ticket.delivered(60)
            record = await gate.outbox.find(ticket.id)
            assert record is not None
            return str(record.message.params["text"])

    with everything_logged(output), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(send()) == text
    assert not any(TOKEN in line for line in output.lines)


ENDLESS: Final = frozenset(("demo", "sim", "stress"))  # with arguments that are right


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_command_repeats_a_token_among_its_arguments(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("TIDEGATE_", "TELEGRAM_"))]:
        monkeypatch.delenv(name)
    address = f"https://me:{PASSWORD}@host/bot{TOKEN}"
    redis = f"redis://:{PASSWORD}@127.0.0.1:1/0"
    subcommands = ("add", "check", "drop", "info", "list", "new", "run", "set", "show", "stats", "why")
    for arguments in (
        [TOKEN],
        [f"--token={TOKEN}"],
        ["--bot", TOKEN],
        *(
            [name, *rest]
            for name in subcommands
            for rest in ([TOKEN], [address], [f"--bot={TOKEN}"], [f"--{TOKEN}"])
        ),
        *([[f"--store={redis}"], ["--store", f"{TOKEN}/x.db"]] if command not in ENDLESS else []),
        *([[name, "5", f"--store={redis}"] for name in ("list", "show")] if command not in ENDLESS else []),
    ):
        main([command, *arguments])

    written = capfd.readouterr()
    assert FRAGMENT not in written.out + written.err
    assert PASSWORD not in written.out + written.err
    assert written.err


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TELEGRAM_BOT_TOKEN", TOKEN),
        ("TELEGRAM_TIMEOUT", TOKEN),
        ("TIDEGATE_BOT_RATE", TOKEN),
        ("TIDEGATE_STORE", f"redis://:{PASSWORD}@127.0.0.1:1/0"),
        ("TIDEGATE_STORE", f"{TOKEN}/tidegate.db"),
        ("TIDEGATE_KEY", KEY),
        ("REDIS_URL", f"redis:/:{PASSWORD}@host"),
        ("DATABASE_URL", f"postgresql://me:{PASSWORD}@host/{TOKEN}"),
        ("DATABASE_REPLICA_URL", f"postgresql://me:{PASSWORD}@host/{TOKEN}"),
    ],
)
def test_no_setting_is_repeated_by_an_error_or_by_the_doctor(
    variable: str,
    value: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)

    for command in (
        ["doctor", "--json"],
        ["doctor"],
        ["queue", "stats"],
        ["webhook", "info"],
        ["bot", "list"],
        ["database", "status"],
    ):
        main(command)

    written = capfd.readouterr()
    for secret in (FRAGMENT, PASSWORD, KEY):
        assert secret not in written.out + written.err
