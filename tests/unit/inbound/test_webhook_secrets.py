"""The secret that Telegram sends with each update of a bot."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegate.inbound import handlers
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.inbox import bot_source
from tidegate.inbound.webhook_app import webhook_secret
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.inbox import MemoryInbox

OLD, NEW = "42:AAbbccddeeffgghhiijjkkllmmnnoopp", "42:AAzzccddeeffgghhiijjkkllmmnnoopp"


async def test_a_secret_is_made_once_and_anew_for_a_new_token(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    tokens = {42: OLD}
    registry = HandlerRegistry(MemoryInbox(clock), clock)
    registry.add_source(bot_source(42))
    gate: Any = SimpleNamespace(is_open=True, handler_registry=registry, token_of=tokens.get)

    def make(token: str) -> str:
        made.append(token)
        return webhook_secret(token)

    monkeypatch.setattr(handlers, "webhook_secret", make)
    gate_handlers = handlers.GateHandlers(cast("handlers.HandlersHost", gate))

    assert [gate_handlers.secret_of(42) for _ in range(3)] == [webhook_secret(OLD)] * 3
    assert [gate_handlers.secret_of(number) for number in (43, 44)] == [None, None]
    tokens[42] = NEW
    assert gate_handlers.secret_of(42) == webhook_secret(NEW)
    assert made == [OLD, NEW]

    gate.is_open = False
    assert gate_handlers.secret_of(42) is None
    gate.is_open = True
    registry.remove_source(bot_source(42))
    assert gate_handlers.secret_of(42) is None
