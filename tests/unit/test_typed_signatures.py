"""Type checkers see a misspelt option or value of `send` and `queue` before the program runs."""

import re
from pathlib import Path

import pytest
from mypy import api

# What the signatures do not need is not read, which takes most of the time.
CONFIG = """
[mypy]
strict = true
[mypy-aiogram.*,aiohttp.*,cryptography.*,pydantic.*,pydantic_settings.*,redis.*,sqlalchemy.*,telegram.*]
follow_imports = skip
"""

SNIPPET = """
import datetime as dt
from collections.abc import Coroutine
from typing import Any
from tidegate import Tidegate

async def good(gate: Tidegate, call: Coroutine[Any, Any, Any], fields: dict[str, Any]) -> None:
    await gate.send(chat_id=1, text="x", priority="high", delay=dt.timedelta(minutes=1), extra={"new": 1})
    await gate.send(chat_id="@name", method="sendPhoto", photo="file_id", caption="x")
    await gate.send_many([{"chat_id": 1, "text": "x"}], parse_mode="HTML")
    await gate.queue(call, priority="low", expires_in=5)
    await gate.send(**fields)

async def bad(gate: Tidegate, call: Coroutine[Any, Any, Any]) -> None:
    await gate.send(chat_id=1, text="x", priority="hgih")
    await gate.send(chat_id=1, text="x", dedup_kye="k")
    await gate.send(chat_id=1, text=5)
    await gate.send_many([], parse_mod="HTML")
    await gate.send_or_queue(chat_id=1, text="x", on_unknown="shrug")
    await gate.queue(call, not_before="soon")
"""


@pytest.mark.timeout(180)
def test_mypy_sees_misspelt_options_and_values(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    good, bad = SNIPPET.split("async def bad", 1)
    first = good.count("\n") + 2

    (tmp_path / "mypy.ini").write_text(CONFIG)
    options = ["--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path / "cache")]
    report, _, _ = api.run([*options, str(snippet)])

    found = {int(line) for line in re.findall(r"snippet\.py:(\d+): error", report)}
    assert found == set(range(first, first + bad.count("await"))), report
