"""Rules that queue: updates above the rate wait in the inbox, and are handled at the rate."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiogram import Bot, Dispatcher

from tidegate import Tidegate
from tidegate.errors import BadInputError
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.inbox import ClaimedItem, bot_source
from tidegate.inbound.throttle import Throttle, ThrottleRules
from tidegate.inbound.throttle_middleware import ThrottleMiddleware
from tidegate.inbound.updates import update_item
from tidegate.model import Rate
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.inbox import MemoryInbox
from tidegate.stores.memory.throttle import MemoryThrottle

SOURCE = bot_source(42)
RULES = ThrottleRules(user=Rate(3, 30), over="queue", queued=10)


def written(number: int, user: int = 1, kind: str = "message", **fields: Any) -> Any:  # noqa: ANN401
    content = {"from": {"id": user}, "chat": {"id": user, "type": "private"}, **fields}
    return update_item(42, {"update_id": number, kind: content})


class Scene:
    """An inbox with a throttle before it. Handled updates are noted with the seconds at which they were."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.inbox = MemoryInbox(clock)
        self.throttle = Throttle(RULES, MemoryThrottle(RULES, clock))
        self.told: list[str] = []
        self.handled: list[tuple[float, int]] = []
        self.registry = HandlerRegistry(self.inbox, clock)
        self.registry.add_source(SOURCE, ThrottleMiddleware(self.throttle, self._tell, self._answer))
        self.registry.register(SOURCE, self._handle)
        self.started = clock.monotonic()

    async def _tell(self, bot: int, chat: int, text: str) -> None:  # noqa: ARG002
        self.told.append(text)

    async def _answer(self, bot: int, query: str, text: str | None) -> None:  # noqa: ARG002
        raise AssertionError("no button is dropped")

    async def _handle(self, claimed: ClaimedItem) -> None:
        number = msgspec.json.decode(claimed.item.body)["update_id"]
        self.handled.append((round(self.clock.monotonic() - self.started), number))


@pytest.fixture
async def scene(clock: VirtualClock) -> AsyncIterator[Scene]:
    scene = Scene(clock)
    await scene.registry.start()
    yield scene
    await scene.registry.stop(1)


async def test_messages_above_the_rate_wait_and_are_handled_at_the_rate(
    scene: Scene, clock: VirtualClock
) -> None:
    assert await scene.registry.accept([written(number) for number in range(6)]) == [True] * 6
    await scene.registry.accept([written(100, user=2)])

    await clock.sleep(1)
    assert sorted(number for _, number in scene.handled) == [0, 1, 2, 100], "nobody else waits"
    await clock.sleep(60)

    mine = [one for one in scene.handled if one[1] != 100]
    assert mine == [(0, 0), (0, 1), (0, 2), (10, 3), (20, 4), (30, 5)]
    assert (scene.throttle.throttled, scene.told) == (0, [])


async def test_what_does_not_fit_into_the_queue_is_dropped_counted_and_told(
    scene: Scene, clock: VirtualClock
) -> None:
    stored = await scene.registry.accept([written(number) for number in range(40)])

    assert stored == [True] * 10 + [False] * 30
    assert scene.throttle.throttled == 30
    assert len(scene.told) == 1
    await clock.sleep(300)
    assert [number for _, number in scene.handled] == list(range(10)), "no pause"
    assert await scene.registry.accept([written(50)]) == [True]


async def test_a_payment_does_not_wait_for_the_messages_before_it(scene: Scene, clock: VirtualClock) -> None:
    paid = written(99, kind="pre_checkout_query", id="7")
    assert await scene.registry.accept([*(written(number) for number in range(20)), paid]) == (
        [True] * 10 + [False] * 10 + [True]
    )

    await clock.sleep(1)

    assert [number for _, number in scene.handled if number > 2] == [99]


async def test_what_waits_is_handled_after_a_restart(scene: Scene, clock: VirtualClock) -> None:
    await scene.registry.accept([written(number) for number in range(6)])
    await clock.sleep(5)
    await scene.registry.stop(1)
    await scene.registry.start()
    await clock.sleep(60)

    assert [number for _, number in scene.handled] == list(range(6))


@pytest.mark.parametrize("options", [{}, {"updates": "durable", "order": "none"}])
def test_rules_that_queue_are_refused_where_nothing_can_wait(options: dict[str, Any]) -> None:
    gate, bot = Tidegate("memory://"), Bot("42:token")
    with pytest.raises(BadInputError, match='give updates="durable" and order="user"'):
        gate.attach(Dispatcher(), bot, throttle=RULES, **options)
    with pytest.raises(BadInputError, match='over="queue" needs an inbox'):
        gate.throttle(RULES)
    gate.attach(Dispatcher(), bot, throttle=RULES, updates="durable")
