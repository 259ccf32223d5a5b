"""How often the API asks the database: as often for many things as for a few, whatever is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from api_caller import ApiCaller
from history_rows import ANN, BOT, attempt, row
from tidegate import Tidegate
from tidegate.jobs.record import NewJob
from tidegate.ops.access import COMMAND_LINE, AccessControl
from tidegate.ops.api.app import declared_routes, make_api

FEW, MANY = 3, 45  # a page has 50
MOST_STATEMENTS = 6  # of one request
NEEDED_QUERY = {"/api/v1/history/search": "?text=word"}
OF_THE_STORE = ("/{name}", "dead-letters/{message_id}")  # one thing, which the database does not know

_asked: ContextVar[list[str] | None] = ContextVar("asked", default=None)


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements that are made for whoever runs in this context, and for nobody else."""
    seen: list[str] = []
    token = _asked.set(seen)
    yield seen
    _asked.reset(token)


@pytest.fixture(autouse=True)
def noted() -> Iterator[None]:
    def note(_c: object, _k: object, statement: str, *_: object) -> None:
        if (seen := _asked.get()) is not None:
            seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield
    event.remove(Engine, "before_cursor_execute", note)


async def fill(gate: Tidegate, access: AccessControl, first: int, last: int) -> str:
    """Add as many of everything; return the id of a message."""
    numbers = range(first, last)
    history = await gate.history.opened()
    await history.write(
        [
            row(text="a word", ticket=f"t{n}", telegram_message_id=n, reply_to_message_id=n - 1 or None)
            for n in numbers
        ]
    )
    await history.write([attempt(ticket="t1") for _ in numbers])
    for _ in numbers:
        await gate.reminders.add(ANN, bot=BOT, text="Hi", at="09:00", every="day", zone="UTC")
        await gate.jobs.submit(NewJob(name="label", chat_id=ANN), bot=BOT)
        await access.create_token("somebody", "viewer")
        await access.note(COMMAND_LINE, "token.create", bot=BOT)
    tickets = await gate.send_many(({"chat_id": ANN + n, "text": "Hi"} for n in numbers), bot=BOT)
    return tickets[0].id


async def test_many_things_take_no_more_statements_than_a_few_on_any_route_that_reads(tmp_path: Path) -> None:
    gate = Tidegate(tmp_path / "bot.db")
    gate.add_bot(f"{BOT}:token")
    access = AccessControl.of(gate.core)
    app = make_api(gate, access)
    await app.start()
    try:
        caller = ApiCaller(app, (await access.create_token("test", "admin")).secret)
        paths = {
            "{message_id}": await fill(gate, access, 1, 1 + FEW),
            "{bot}": BOT,
            "{chat_id}": ANN,
            "{telegram_id}": 1,
            "{reminder_id}": 1,
            "{job_id}": 1,
        }

        async def counts() -> dict[str, int]:
            found = {}
            for route in declared_routes():
                if route.method != "GET" or any(one in route.path for one in OF_THE_STORE):
                    continue
                path = route.path + NEEDED_QUERY.get(route.path, "")
                for name, value in paths.items():
                    path = path.replace(name, str(value))
                await caller.get(path)  # the first one opens what is not open
                with statements() as seen:
                    answer = await caller.get(path)
                assert answer.status == 200, (path, answer.body)
                found[route.path] = len(seen)
            return found

        few = await counts()
        await fill(gate, access, 1 + FEW, 1 + MANY)
        many = await counts()
    finally:
        await app.stop()

    assert few == many
    in_the_database = {
        "/api/v1/history",
        "/api/v1/reminders",
        "/api/v1/jobs",
        "/api/v1/tokens",
        "/api/v1/audit",
    }
    assert {path for path in in_the_database if many[path] == 0} == set(), "they are seen"
    assert {path: count for path, count in many.items() if count > MOST_STATEMENTS} == {}
