"""A service to look at: a bot that sends, a paused one, dead letters, and names that try to harm."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from playwright.sync_api import Browser

from browser import Visitor
from system.operators import nothing_set, running
from system.service_process import ServiceProcess, new_token, serving
from tidegate import Tidegate
from tidegate.history import HistoryRow
from tidegate.jobs.record import NewJob
from tidegate.model import BotId, Dead, Settlement, TicketId
from tidegate.ops.access import AccessControl

Result = TypeVar("Result")
SENDING, PAUSED = BotId(42), BotId(43)  # bots
WAITING_CHAT, BLOCKED_CHAT = 5001, 6001
RECORDED: Final = 17  # Telegram's id of a message that is in history alone
STORE: Final = "bot.db"
ROLES: Final = ("admin", "operator")
SECRET_TEXT: Final = "the old mill at midnight"  # what a viewer must not see
BLOCKED: Final = Dead("blocked", "Forbidden: bot was blocked by the user")
# Each would set `hacked`, had it become markup, a script or an address.
HOSTILE: Final = (
    "<script>hacked=1</script>",
    "<img src=x onerror=hacked=1>",
    '"><svg onload=hacked=1>',
    "' onfocus=hacked=1 autofocus x='",
    "javascript:hacked=1",
    "</title></script><script>hacked=1</script>",
    "{{ 7 * 7 }}{% raw %}",
)


class DashboardService(msgspec.Struct, kw_only=True):
    """A running service, a token of each role, and one of each that pages are about."""

    service: ServiceProcess
    browser: Browser
    tokens: Mapping[str, str]
    waiting: str  # a message of the paused bot
    letter: str  # a dead letter of the bot that sends
    broadcast: str
    job: int

    @property
    def examples(self) -> dict[str, str]:
        """Values for the parameters of pages."""
        return {
            "bot": str(SENDING),
            "message_id": self.waiting,
            "id": self.waiting,
            "name": self.broadcast,
            "chat_id": str(WAITING_CHAT),
            "telegram_id": str(RECORDED),
            "job": str(self.job),
        }

    def visitor(self, role: str | None = "admin", **options: Any) -> Visitor:  # noqa: ANN401  (of a browser context)
        """A browser of somebody who is logged in; with no role, of a stranger."""
        cookie = None if role is None else self.cookie(role)
        return Visitor(self.browser, self.service.url, cookie, **options)

    def cookie(self, role: str) -> str:
        status, headers, _ = self.service.ask("POST", "/login", body={"token": self.tokens[role]})
        assert status == 200
        cookie = {name.lower(): value for name, value in headers.items()}["set-cookie"]
        return cookie.partition(";")[0].partition("=")[2]

    def told(self, method: str, path: str, **more: Any) -> Any:  # noqa: ANN401  (JSON)
        return self.service.told(method, path, self.tokens["admin"], **more)

    def put(self, count: int, text: str = "Hello") -> None:
        """Queue messages of the bot that sends, to a chat each."""
        for number in range(count):
            body = {"bot": SENDING, "chat_id": 10_000 + number, "text": text}
            self.told("POST", "/api/v1/messages", body=body)


@contextmanager
def dashboard_service(folder: Path, browser: Browser) -> Iterator[DashboardService]:
    # A loop runs beneath Playwright's calls: what needs one of its own is done in a thread.
    with simulated_telegram() as telegram:
        made = in_a_thread(lambda: asyncio.run(_fill(folder / STORE, telegram)))
        tokens = made.pop("tokens") | {"viewer": in_a_thread(lambda: new_token(folder, "viewer"))}
        with serving("up", "--store", STORE, folder=folder) as service:
            yield DashboardService(service=service, browser=browser, tokens=tokens, **made)


@contextmanager
def simulated_telegram() -> Iterator[str]:
    with running("sim", "telegram", "--port", "0", "--json") as process:
        assert process.stderr is not None
        yield next(word for word in process.stderr.readline().split() if word.startswith("http://"))


async def _fill(store: Path, telegram: str) -> dict[str, Any]:
    with nothing_set():
        async with Tidegate(str(store)) as gate:
            access = AccessControl.of(gate.core)
            tokens = {role: (await access.create_token(role, role)).secret for role in ROLES}
            for hostile in HOSTILE:
                await access.create_token(hostile, "viewer")
            for bot in (SENDING, PAUSED):
                await gate.register_bot(f"{bot}:token", api_url=telegram)
            letters = [
                (await gate.send(bot=SENDING, chat_id=BLOCKED_CHAT + n, text=text, urgent=True)).id
                for n, text in enumerate((SECRET_TEXT, *HOSTILE))
            ]
            await _let_die(gate, letters)
            await gate.outbox.pause(PAUSED)
            waiting = [
                (await gate.send(bot=PAUSED, chat_id=WAITING_CHAT + n, text=text)).id
                for n, text in enumerate((SECRET_TEXT, *HOSTILE))
            ]
            await gate.start_broadcast("sale", [WAITING_CHAT], SECRET_TEXT, bot=PAUSED)
            job = await gate.jobs.submit(NewJob(name="label", args=(SECRET_TEXT,)), bot=PAUSED)
            await (await gate.history.opened()).write([_recorded(gate.clock.now())])
            for hostile in HOSTILE:
                principal = await access.authenticate(tokens["admin"])
                assert principal is not None
                await access.note(principal, "messages.cancel", bot=PAUSED, target=hostile, detail=hostile)
    found = {"letter": letters[0], "waiting": waiting[0], "broadcast": "sale", "job": job.id}
    return {"tokens": tokens} | found


def _recorded(now: float) -> HistoryRow:
    """A message that came in, as history has it."""
    return HistoryRow(
        key="recorded",
        bot=SENDING,
        direction="in",
        chat_id=str(WAITING_CHAT),
        telegram_message_id=RECORDED,
        reply_to_message_id=None,
        user_id=WAITING_CHAT,
        kind="message",
        is_change=False,
        text=SECRET_TEXT,
        state="received",
        created_at=now,
    )


async def _let_die(gate: Tidegate, letters: list[TicketId]) -> None:
    """Give messages a hostile end each, but the first one a plain one."""
    ends = dict(zip(letters, (BLOCKED, *(Dead(hostile, hostile) for hostile in HOSTILE)), strict=True))
    await gate.outbox.start_sending()
    while (await gate.stats()).dead < len(letters):
        claims = await gate.outbox.claim(100)
        await gate.outbox.settle([Settlement(claim, ends[claim.message.id]) for claim in claims])
        await gate.clock.sleep(0.01)  # for the pace of the bot


def in_a_thread(work: Callable[[], Result]) -> Result:
    """Run what starts a loop of its own beside the one of Playwright."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
