"""One suite of facts about NocoDB, for the simulator here and for the real one (`make test-nocodb`)."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from typing import Any

import aiohttp
import pytest
from yarl import URL

from nocodb.places import Json, Place, Simulated
from nocodb.real import real_nocodb
from tidegate.model import Rate
from tidegate.upstream.nocodb.client import NocoDb
from tidegate.upstream.nocodb.table import Table

ASKED = os.environ.get("TIDEGATE_NOCODB", "")  # real, real-postgres, simulated-postgres, or the simulator
IS_REAL, ON_POSTGRES = ASKED.startswith("real"), ASKED.endswith("postgres")
_TITLES = count(1)

Ask = Callable[..., Awaitable[tuple[int, Json]]]


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def the_real_one() -> Iterator[Place | None]:
    if not IS_REAL:
        yield None
        return
    with real_nocodb(postgres=ON_POSTGRES) as server:
        yield server


@pytest.fixture(scope="module")  # for longer, and its event loop would be that of other tests too
async def place(the_real_one: Place | None) -> AsyncIterator[Place]:
    if the_real_one is not None:
        yield the_real_one
        return
    simulated = Simulated.made(postgres=ON_POSTGRES)
    async with simulated.server:
        yield simulated


@pytest.fixture
def table_id(place: Place) -> str:
    return place.make_table(f"orders{next(_TITLES)}")


@pytest.fixture
async def nocodb(place: Place) -> AsyncIterator[NocoDb]:
    """As fast as it can: neither has a limit here."""
    async with NocoDb.at(place.url, place.token, rate=Rate(1_000_000, 1)) as client:
        yield client


@pytest.fixture
def table(nocodb: NocoDb, table_id: str) -> Table:
    return nocodb.table(table_id)


@pytest.fixture
async def ask(place: Place, table_id: str) -> AsyncIterator[Ask]:
    """Past the client, about the records of the table: a method, the rest of the path, a body."""
    async with aiohttp.ClientSession(headers={"xc-token": place.token}) as session:

        async def asked(method: str, rest: str = "", body: Json = None, **changed: Json) -> tuple[int, Json]:
            path = changed.pop("path", f"/api/v2/tables/{table_id}/records{rest}")
            url = URL(place.url + path, encoded=True)
            async with session.request(method, url, json=body, **changed) as answer:
                return answer.status, await answer.json() if answer.content_length else None

        yield asked
