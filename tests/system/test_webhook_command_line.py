"""`tidegate webhook` on a real store, against a simulated Telegram over HTTP."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from system.operators import PATIENCE, TOKEN, Desk, telegram

BASE = "http://127.0.0.1:9"  # nobody listens there


@pytest.fixture(scope="module")
def simulator() -> Iterator[str]:
    with telegram() as address:
        yield address


@pytest.fixture(autouse=True)
def a_command_may_look_for_its_store(no_blocking_calls: BlockBuster) -> None:
    """Nothing else runs in its loop yet."""
    for function in no_blocking_calls.functions.values():
        function.can_block_in("cli/store.py", "gate_for")


@pytest.fixture
def desk(tmp_path: Path, simulator: str) -> Desk:
    desk = Desk(tmp_path, simulator)
    desk.begin()
    ask(desk, "deleteWebhook", drop_pending_updates=True)
    return desk


def ask(desk: Desk, method: str, **params: object) -> Any:  # noqa: ANN401  (Telegram's)
    request = urllib.request.Request(  # noqa: S310  (loopback)
        f"{desk.telegram}/bot{TOKEN}/{method}",
        json.dumps(params).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310  (likewise)
        return json.load(answer)["result"]


def test_a_registered_bot_gets_a_webhook_and_loses_it(desk: Desk) -> None:
    url = f"{BASE}/webhook/telegram/42"
    code, out, err = desk.quickly("webhook", "set", f"{BASE}/", "--allowed-updates", "message")
    assert (code, out, err) == (0, f"42:… gets its updates at {url}\n", "")
    assert ask(desk, "getWebhookInfo")["url"] == url

    (found,) = desk.told("webhook", "info")["webhooks"]
    assert (found["state"], found["url"], found["allowed_updates"]) == ("well", url, ["message"])
    assert "updates arrive at this address" in desk.quickly("webhook", "info")[1]

    (deleted,) = desk.told("webhook", "delete")["webhooks"]
    assert (deleted["bot"], deleted["url"], deleted["error"], deleted["was"]) == (42, "", None, url)
    code, out, _ = desk.quickly("webhook", "info")
    assert code == 0
    assert "the bot uses long polling" in out


def test_what_waits_is_dropped_only_by_who_is_sure(desk: Desk) -> None:
    desk.say_to_telegram("say", bot=42, user=7, text="hello")
    line = desk.complains("webhook", "delete", "--drop-pending")
    assert "1 update waits at Telegram" in line
    assert "pass --yes" in line
    assert ask(desk, "getWebhookInfo")["pending_update_count"] == 1
    desk.told("webhook", "delete", "--drop-pending", "--yes")
    assert ask(desk, "getWebhookInfo")["pending_update_count"] == 0


def test_what_is_asked_wrongly_is_one_line(desk: Desk) -> None:
    assert "must be https" in desk.complains("webhook", "set", "http://bots.example.org")
    assert "43 is not known here, but 42" in desk.complains("webhook", "info", "--bot", "43")
    assert "--max-connections" in desk.complains("webhook", "set", BASE, "--max-connections", "0")
    refused = desk.complains("webhook", "set", "https://bots.example.org", code=1)
    assert "setWebhook of 42:… failed: Bad Request: bad webhook" in refused
    desk.store.unlink()
    assert "there is no store at tidegate.db" in desk.complains("webhook", "info")


def test_a_token_in_the_environment_needs_no_store(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.store.unlink()
    monkeypatch.setattr("system.operators.environment", lambda: {"TELEGRAM_BOT_TOKEN": TOKEN})
    (found,) = desk.told("webhook", "info", "--api-url", desk.telegram)["webhooks"]
    assert (found["bot"], found["state"]) == (42, "polling")
    assert not desk.store.exists()
