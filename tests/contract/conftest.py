"""One behavioural suite for every store, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from contract.post import ROOMY, Post
from contract.stores import STORES, Store
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock, VirtualLoop

OpenPost = Callable[..., Awaitable[Post]]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualLoop}


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock(asyncio.get_running_loop())


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    return STORES[request.param]


@pytest.fixture
async def open_post(clock: VirtualClock, store: Store) -> AsyncIterator[OpenPost]:
    """Opens a store with given rules."""
    opened: list[Outbox] = []

    async def open_one(rules: Rules = ROOMY, *, lease: float = 30.0, keep: float = 600.0) -> Post:
        outbox = store(clock, rules, lease=lease, keep=keep)
        await outbox.open()
        opened.append(outbox)
        return Post(outbox, clock)

    yield open_one
    for outbox in opened:
        await outbox.close()


@pytest.fixture
async def post(open_post: OpenPost) -> Post:
    """A store whose limits are out of the way."""
    return await open_post()


@pytest.fixture
async def outbox(post: Post) -> Outbox:
    return post.outbox
