"""The command line knows a bot that a running process has attached, though no token is in the store."""

from pathlib import Path

import pytest

from tidegate import Tidegate
from tidegate.cli.store import choose_bot
from tidegate.errors import BadInputError
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.aiogram.stage import Stage


async def test_a_message_from_a_shell_beside_an_attached_bot_is_delivered(
    clock: VirtualClock, tmp_path: Path
) -> None:
    file = str(tmp_path / "tidegate.db")
    stage = Stage(clock, store=file)
    stage.gate.attach(stage.dispatcher, stage.bot)
    await stage.dispatcher.emit_startup(bot=stage.bot, **stage.dispatcher.workflow_data)

    async with Tidegate(file, clock=clock) as shell:
        bot = await choose_bot(shell, None)
        ticket = await shell.send(bot=bot, chat_id=1001, text="hi")
        receipt = await ticket.delivered(timeout=10)
        stored = await shell.core.registry.rotate()
    await stage.dispatcher.emit_shutdown(bot=stage.bot, **stage.dispatcher.workflow_data)

    assert (bot, receipt.message_id is not None) == (42, True)
    assert stored == 0  # no token is in the file


async def test_without_a_running_process_the_error_says_what_to_do(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with Tidegate(str(tmp_path / "tidegate.db"), clock=clock) as shell:
        with pytest.raises(BadInputError, match="no running process delivers for one: register it with"):
            await choose_bot(shell, None)


async def test_a_bot_that_nobody_knows_is_refused_beside_an_attached_one(
    clock: VirtualClock, tmp_path: Path
) -> None:
    file = str(tmp_path / "tidegate.db")
    stage = Stage(clock, store=file)
    stage.gate.attach(stage.dispatcher, stage.bot)
    await stage.dispatcher.emit_startup(bot=stage.bot, **stage.dispatcher.workflow_data)

    async with Tidegate(file, clock=clock) as shell:
        with pytest.raises(BadInputError, match=r"43 is not registered in this store.*known: 42"):
            await choose_bot(shell, 43)
    await stage.dispatcher.emit_shutdown(bot=stage.bot, **stage.dispatcher.workflow_data)
