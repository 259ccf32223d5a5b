"""Stacks are read to a line of the application, the call in it, its handler and its chat."""

import asyncio
import datetime as dt
import functools
import reprlib
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiogram.dispatcher.event.handler as aiogram_handler
import pytest
from aiogram.types import CallbackQuery, Chat, Message, User

import tidegate
from tidegate.call_stack import (
    StackReading,
    function_name,
    is_own_file,
    read_stack,
    short_path,
    task_frames,
    thread_frames,
)
from tidegate.sim import VirtualClock

ANN = User(id=7, is_bot=False, first_name="Ann")


def message_in(chat: int) -> Message:
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    return Message(message_id=1, date=noon, chat=Chat(id=chat, type="private"), text="pay")


def block(readings: list[StackReading], *, above: int = 0) -> None:
    """Stands for what blocks: it keeps the reading of the stack that leads to it, without frames `above`."""
    frames = thread_frames(sys._getframe(1))  # noqa: SLF001
    readings.append(read_stack(frames[: len(frames) - above]))


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("/home/ann/bot/pay.py", True),
        (f"{Path(tidegate.__file__).parent}_app/pay.py", True),
        (f"{sysconfig.get_path('stdlib')}-tools/pay.py", True),
        (tidegate.__file__, False),
        (asyncio.__file__, False),
        ("/usr/lib/python3/dist-packages/requests/api.py", False),
        (r"C:\bot\venv\Lib\site-packages\requests\api.py", False),
        ("/home/ann/site-packages-of-mine/pay.py", True),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_files_of_the_application_are_told_from_those_of_libraries(path: str, is_own: bool) -> None:  # noqa: FBT001
    assert is_own_file(path) == is_own


def test_a_path_is_shortened_to_its_folder_and_file() -> None:
    assert short_path("/home/ann/bot/pay.py") == "bot/pay.py"
    assert short_path(r"C:\bot\pay.py") == "bot/pay.py"


def test_the_innermost_line_of_the_application_and_the_call_in_it_are_named() -> None:
    readings: list[StackReading] = []
    keep = SimpleNamespace(it=block)

    def charge() -> None:
        keep.it(
            readings,
        )

    charge()
    [reading] = readings
    assert reading.function == "charge"
    assert reading.call == "keep.it"
    assert reading.where == f"in unit/test_call_stack.py:{charge.__code__.co_firstlineno + 1} keep.it"
    assert reading.lines[-1].endswith("charge")


def test_of_a_chain_of_calls_the_one_that_runs_is_named() -> None:
    readings: list[StackReading] = []

    def session() -> SimpleNamespace:
        return SimpleNamespace(get=block)

    session().get(readings)
    assert readings[0].call == "session().get"


def test_a_library_is_named_by_the_line_of_the_application_that_calls_it() -> None:
    readings: list[StackReading] = []

    class Odd:
        def __repr__(self) -> str:
            block(readings, above=1)  # as if this were not the application's
            return ""

    reprlib.repr(Odd())
    [reading] = readings
    assert reading.call == "reprlib.repr"
    assert reading.place is not None
    assert reading.place.startswith("unit/test_call_stack.py:")


def test_a_stack_of_libraries_alone_is_named_by_its_innermost_line() -> None:
    readings: list[StackReading] = []
    code = compile("json_library()", f"{sysconfig.get_path('stdlib')}/json/it.py", "exec")

    def json_library() -> None:
        readings.append(read_stack([sys._getframe(1)]))  # noqa: SLF001

    exec(code, {"json_library": json_library})  # noqa: S102  (a line in a file of a library)
    assert (readings[0].place, readings[0].handler) == ("json/it.py:1", None)


def test_an_empty_stack_says_nothing() -> None:
    assert read_stack([]) == StackReading()
    assert read_stack([]).where == "at a place that is not known"


async def handled(callback: Callable[..., Any], event: object) -> None:
    await aiogram_handler.HandlerObject(callback).call(event)


@pytest.mark.parametrize(
    ("event", "chat"),
    [
        (message_in(1001), 1001),
        (CallbackQuery(id="1", from_user=ANN, chat_instance="1", message=message_in(-5)), -5),
        (CallbackQuery(id="1", from_user=ANN, chat_instance="1"), 7),
        (object(), None),
    ],
)
async def test_the_handler_of_aiogram_and_its_chat_are_found(event: object, chat: int | None) -> None:
    readings: list[StackReading] = []

    async def on_pay(_: object) -> None:
        block(readings)

    await handled(on_pay, event)
    [reading] = readings
    assert (reading.handler, reading.chat) == ("on_pay", chat)


async def test_a_filter_of_aiogram_is_no_handler() -> None:
    readings: list[StackReading] = []

    async def is_rich(_: object) -> bool:
        block(readings)
        return True

    await asyncio.create_task(aiogram_handler.FilterObject(is_rich).call(message_in(1001)))
    assert (readings[0].handler, readings[0].function) == (None, "is_rich")


async def test_the_place_where_a_task_waits_is_read(clock: VirtualClock) -> None:
    async def on_slow(_: object) -> None:
        await clock.sleep(5)

    task = asyncio.create_task(handled(on_slow, message_in(1001)))
    await clock.sleep(1)
    reading = read_stack(task_frames(task))
    await task
    assert (reading.handler, reading.chat, reading.call) == ("on_slow", 1001, "clock.sleep")


def test_wrapped_and_partial_functions_have_the_name_of_what_they_wrap() -> None:
    def on_pay() -> None:
        """Wrapped."""

    @functools.wraps(on_pay)
    def wrapper() -> None:
        """Wraps."""

    class Handler:
        def __call__(self) -> None:
            """Handle."""

    names = [function_name(one) for one in (on_pay, wrapper, functools.partial(wrapper), Handler())]
    assert names == ["on_pay", "on_pay", "on_pay", "Handler"]
