"""The parts of `tidegate webhook` that need no store: addresses, verdicts, calls to a simulated Telegram."""

from typing import Any

import pytest
from rich.console import Console

from tidegate.cli.webhook import WebhookOptions, _deleted, change, deleting, kinds_of, setting
from tidegate.cli.webhook.calls import WebhookCalls, base_of, complaint, webhook_at
from tidegate.cli.webhook.report import ask, webhook_picture
from tidegate.delivery.sender import BotAccess
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.inbound.webhook_app import webhook_secret
from tidegate.model import BotId
from tidegate.ops.webhook_state import bot_at, judge, webhook_report, without_token
from tidegate.sim.telegram import Person
from tidegate.sim.telegram import SimulatedTelegram as Simulated
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.telegram.update_delivery import WebhookAnswer
from tidegate.sim.telegram.world import World
from tidegate.sim.virtual_time import VirtualClock

SECRET = "AAhushhushhushhushhushhushhush"
TOKEN = f"42:{SECRET}"
URL = "https://api.telegram.org"
OURS = "https://bots.example.org/webhook/telegram/42"
NOW = 1_800_000_000.0
BOTS = {BotId(42): BotAccess(TOKEN, URL), BotId(43): BotAccess(f"43:{SECRET}", URL)}


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("https://bots.example.org", "https://bots.example.org"),
        (" https://bots.example.org:8443/ ", "https://bots.example.org:8443"),
        ("https://example.org/bots/", "https://example.org/bots"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_address_of_ours_ends_with_the_bots_number(given: str, base: str) -> None:
    assert base_of(given) == base
    assert webhook_at(base, 42) == f"{base}/webhook/telegram/42"
    assert bot_at(webhook_at(base, 42)) == 42


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "must be an https address"),
        ("bots.example.org", "must be an https address"),
        ("ftp://bots.example.org", "must be an https address"),
        ("https://", "must be an https address"),
        ("https://bots.example.org:99999", "cannot be read"),
        ("https://[::1", "cannot be read"),
        ("http://bots.example.org", "must be https"),
        ("http://10.0.0.1", "must be https"),
        ("https://me:hush@bots.example.org", "must have no user"),
        ("https://bots.example.org/?key=hush", "must have no user"),
        ("https://bots.example.org/#hush", "must have no user"),
        ("https://bots.example.org/webhook/telegram", "must end before /webhook/telegram"),
        (f"https://bots.example.org/{TOKEN}", "contains a token"),
        (f"https://bots.example.org/42%3A{SECRET}", "contains a token"),
    ],
)
def test_an_address_that_cannot_be_used_is_not_repeated(given: str, told: str) -> None:
    with pytest.raises(BadInputError, match=told) as caught:
        base_of(given)
    assert "hush" not in str(caught.value)


def test_kinds_are_named_as_telegram_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert kinds_of("message, callback_query,") == ["message", "callback_query"]
    assert kinds_of("") == []
    assert capsys.readouterr().err == ""
    assert kinds_of("message,mesage") == ["message", "mesage"]
    assert "may never be sent: mesage" in capsys.readouterr().err
    with pytest.raises(BadInputError, match="'all the best' is not a kind of update"):
        kinds_of("all the best")


def test_what_is_not_said_is_left_to_telegram() -> None:
    assert WebhookOptions().params() == {}
    wish = WebhookOptions(max_connections=5, allowed_updates="", drop_pending=True)
    assert wish.params() == {"max_connections": 5, "allowed_updates": [], "drop_pending_updates": True}


@pytest.mark.parametrize(
    ("info", "state", "told"),
    [
        ({"url": ""}, "polling", "the bot uses long polling"),
        ({"url": "", "pending_update_count": 2}, "polling", "2 updates wait for that"),
        ({"url": "https://bots.example.org/hook"}, "elsewhere", "not an address of Tidegate"),
        ({"url": OURS + "1"}, "elsewhere", "the address of bot 421: run tidegate webhook set --bot 42"),
        ({"url": OURS}, "well", "updates arrive at this address"),
        ({"url": OURS, "pending_update_count": 5_000}, "failing", "5,000 updates wait"),
    ],
)
def test_a_webhook_is_judged_in_plain_words(info: dict[str, Any], state: str, told: str) -> None:
    verdict = judge(42, info, NOW)

    assert (verdict.state, told in verdict.text) == (state, True), verdict
    assert verdict.is_well == (state in {"polling", "well"})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Wrong response from the webhook: 401 Unauthorized", "run tidegate webhook set again"),
        ("Wrong response from the webhook: 404 Not Found", "check that it serves this bot"),
        ("Wrong response from the webhook: 502 Bad Gateway", "the bot behind it does not"),
        ("Wrong response from the webhook: 503 Service Unavailable", "/readyz"),
        ("Connection refused", "check that the bot runs"),
        ("Connection timed out", "firewall"),
        ("Read timeout expired", "takes too long"),
        ("SSL error {error:0A000086:SSL routines::certificate verify failed}", "whole chain"),
        ("Failed to resolve host: Name or service not known", "DNS"),
        ("Something new", "check what answers"),
    ],
)
def test_the_last_error_says_what_to_do(said: str, told: str) -> None:
    info = {"url": OURS, "last_error_message": said, "last_error_date": NOW - 30}

    failing = judge(42, info | {"pending_update_count": 1}, NOW)
    assert (failing.state, told in failing.text) == ("failing", True), failing
    over = judge(42, info | {"pending_update_count": 0}, NOW)
    assert (over.state, "the last error is over" in over.text) == ("well", True), over
    assert judge(42, info | {"pending_update_count": 1}, NOW + 86_400).is_well


@pytest.mark.parametrize("place", [TOKEN, f"42%3A{SECRET}", SECRET, f"99:{SECRET}", f"99%3a{'x' * 35}"])
def test_a_token_in_somebodys_address_is_not_shown(place: str) -> None:
    info = {"url": f"https://bots.example.org/{place}", "last_error_message": f"404 at /{place}"}
    found = webhook_report(42, BOTS[BotId(42)], info, NOW)

    assert SECRET not in str(found)
    assert "x" * 35 not in str(found)
    assert found["url"].startswith("https://bots.example.org/")
    assert without_token(place, TOKEN) == "…" or "hush" not in without_token(place, TOKEN)


def test_what_was_found_fits_a_small_terminal() -> None:
    info = {
        "url": "https://" + "bots." * 20 + "org/webhook/telegram/42",
        "pending_update_count": 12,
        "last_error_message": "Connection refused",
        "last_error_date": NOW - 90,
        "max_connections": 40,
        "allowed_updates": ["message", "callback_query"],
    }
    console = Console(width=80)
    with console.capture() as capture:
        console.print(webhook_picture(webhook_report(42, BOTS[BotId(42)], info, NOW)))

    text = capture.get()
    assert max(map(len, text.splitlines())) <= 80
    for part in (
        "42:…",
        "12",
        "Connection refused (90 s ago)",
        "40",
        "message, callback_query",
        "nothing listens",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (NoAnswer(left=False, reason="dns"), "(dns): check the address and the network"),
        (NoAnswer(left=True, reason="timeout"), "it may have been done nevertheless"),
        (ApiAnswer(502, None), "status 502, but not as Telegram does"),
        (ApiAnswer(401, {"ok": False, "description": "Unauthorized"}), "tidegate bot add"),
        (
            ApiAnswer(429, {"ok": False, "description": "Slow", "parameters": {"retry_after": 7}}),
            "again in 7 s",
        ),
        (ApiAnswer(500, {"ok": False}), "failure of its own"),
        (
            ApiAnswer(
                400, {"ok": False, "description": "Bad Request: bad webhook: Failed to resolve host: no"}
            ),
            "in the public DNS",
        ),
        (ApiAnswer(400, {"ok": False, "description": "Bad Request: something new"}), "correct that"),
    ],
)
def test_what_telegram_refuses_comes_with_what_to_do(answer: ApiAnswer | NoAnswer, told: str) -> None:
    assert told in complaint(answer, URL)


class Hook:
    """A bot's web server, in process: takes what has the right secret."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def post(self, url: str, headers: dict[str, str], _: bytes) -> WebhookAnswer:
        right = headers["X-Telegram-Bot-Api-Secret-Token"] == webhook_secret(TOKEN)
        self.seen.append(url)
        return WebhookAnswer(200 if right else 401)


async def test_a_webhook_is_set_looked_at_and_deleted(clock: VirtualClock) -> None:
    hook = Hook()
    simulated = Simulated(clock, post=hook.post)
    telegram = WebhookCalls(TelegramWire(simulated, clock), clock)
    bot = simulated.world.bot(TOKEN)
    assert bot is not None
    base = "http://127.0.0.1:9"
    only = {BotId(42): BOTS[BotId(42)]}

    done = await change(telegram, only, setting(base, {"max_connections": 7}))
    assert done == [{"bot": 42, "url": f"{base}/webhook/telegram/42", "error": None}]
    Person(simulated, bot, 7).says("hello")
    await clock.sleep(1)
    (found,) = await ask(telegram, only)
    assert hook.seen == [f"{base}/webhook/telegram/42"]
    assert (found["state"], found["waiting"], found["max_connections"]) == ("well", 0, 7)

    (deleted,) = await change(telegram, only, deleting(drop_pending=False))
    assert (deleted["was"], deleted["waiting"]) == (f"{base}/webhook/telegram/42", 0)
    Person(simulated, bot, 7).says("hello again")
    (found,) = await ask(telegram, only)
    assert (found["state"], found["url"], found["waiting"]) == ("polling", "", 1)
    (deleted,) = await change(telegram, only, deleting(drop_pending=True))
    assert (deleted["was"], deleted["waiting"]) == ("", 1)
    assert (await ask(telegram, only))[0]["waiting"] == 0
    await simulated.close()


async def test_a_bot_that_fails_stops_no_other(clock: VirtualClock) -> None:
    simulated = Simulated(clock, world=World(tokens={f"43:{SECRET}"}))
    telegram = WebhookCalls(TelegramWire(simulated, clock), clock)

    done = await change(telegram, BOTS, deleting(drop_pending=False))
    assert [each["bot"] for each in done] == [42, 43]
    assert "deleteWebhook of 42:… failed: Unauthorized: the token is no longer valid" in done[0]["error"]
    assert done[1]["error"] is None
    found = await ask(telegram, BOTS)
    assert [each["is_well"] for each in found] == [False, True]
    with pytest.raises(NotDeliveredError, match="tidegate bot add"):
        await ask(telegram, {BotId(42): BOTS[BotId(42)]})
    assert SECRET not in str(done) + str(found)


@pytest.mark.parametrize(
    ("done", "told"),
    [
        (
            {"was": "https://a.example/x", "waiting": 0},
            "42:… the webhook https://a.example/x is deleted; no upd",
        ),
        ({"was": "", "waiting": 2}, "42:… there was no webhook; 2 updates wait at Telegram for long polling"),
        (
            {"was": "", "waiting": 1, "drop_pending_updates": True},
            "1 update that waited at Telegram was dropped",
        ),
    ],
)
def test_delete_says_what_it_did(done: dict[str, object], told: str) -> None:
    assert told in _deleted({"bot": 42, **done})
