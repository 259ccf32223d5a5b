"""An ordinary aiogram bot behind a gate: nothing changes for it but that nothing is refused."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from system.bots import aiogram_shop
from system.bots.scenes import GENEROUS, MANY, SCENES, Scene, Visit
from tidegate import Tidegate
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram.http import TelegramServer

ROOMY = Rules(bot=MANY, private=MANY, group=MANY, actions=(MANY,))
Opening = Callable[[TelegramServer, Tidegate], AbstractAsyncContextManager[None]]


@pytest.fixture(scope="module", params=[aiogram_shop.polling, aiogram_shop.webhook])
async def open_shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TelegramServer]:
    opening: Opening = request.param
    gate = Tidegate(tmp_path_factory.mktemp("shop") / "tidegate.db", rules=ROOMY)
    async with TelegramServer(limits=GENEROUS) as server, opening(server, gate):
        yield server


@pytest.mark.parametrize("scene", SCENES)
async def test_conversation(scene: Scene, open_shop: TelegramServer) -> None:
    await scene(Visit(open_shop.telegram))
