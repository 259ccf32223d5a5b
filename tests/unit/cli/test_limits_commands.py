"""`tidegate limits set|reset|list` on a file."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidegate.cli.limits import app
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.stores.sqlite.outbox import SqliteOutbox


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tidegate.db"
    monkeypatch.setenv("TIDEGATE_STORE", str(path))

    async def make() -> None:
        outbox = SqliteOutbox(path, Clock())
        await outbox.open()
        await outbox.close()

    asyncio.run(make())


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def told(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(*arguments, "--json"))
    return found


def test_limits_are_set_one_by_one_listed_and_reset() -> None:
    assert said("set", "--bot", "42", "--rate", "25/1") == "bot 42 has its own: 25/1 in all\n"
    assert told("set", "--bot", "42", "--group-rate", "15/60")["own"] == ["bot_rate", "group_rate"]

    [own] = told("list")["own"]
    assert (own["bot"], own["bot_rate"], own["chat_rate"], own["group_rate"]) == (42, "25/1", "1/1", "15/60")
    assert "bot 42 has its own: 25/1 in all, 15/60 for a group" in said("list")

    assert "as in the settings" in said("reset", "--bot", "42")
    assert told("list")["own"] == []
    assert "nothing was changed" in said("reset", "--bot", "42")


def test_a_limit_above_what_telegram_publishes_is_set_and_said() -> None:
    text = said("set", "--bot", "42", "--rate", "60/1", "--chat-rate", "1/1")
    assert "--rate: faster than Telegram publishes" in text
    assert "--chat-rate" not in text


@pytest.mark.parametrize("arguments", [(), ("--rate", "25"), ("--rate", "25/9999")])
def test_a_limit_that_cannot_be_meant_is_refused_with_an_example(arguments: tuple[str, ...]) -> None:
    with pytest.raises(BadInputError, match=r"\d+/\d+"):
        CliRunner().invoke(app, ["set", "--bot", "42", *arguments], catch_exceptions=False)
