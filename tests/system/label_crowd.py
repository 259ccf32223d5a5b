"""A crowd that uses the label bot: everybody writes now and then, and knows what must come back."""

import asyncio
import math
import random
import re
from array import array
from collections import deque
from typing import Any, Final

import msgspec

from system.inbound_vitals import percentile
from tidegate.model import Rate
from tidegate.sim.telegram import Limits, SimulatedTelegram
from tidegate.sim.telegram.entities import Json, SimulatedBot

TOKEN: Final = "42:labels"
FIRST: Final = 1_000_001
ORDER: Final = "/order 2.5 kg; Jane Doe; Main St 1; 12345 Berlin"
LOOKS: Final = 0.2  # share of messages that ask for the list of orders: a query of the database
CHAT: Final = Rate(3, 3)  # so that an answer and a label need not wait for each other
LABEL_CORES: Final = 0.5  # of the work of labels, if nothing else is asked for
LONGEST_LABEL: Final = 2.0  # seconds of work, likewise
CARRIER_SECONDS: Final = 0.3  # that the carrier takes to answer
GRACE: Final = 60.0  # seconds for the last answers and labels
IN_TIME: Final = 1_000.0  # ms in which everybody is answered
TIMEOUT: Final = 10_000.0  # ms after which a client would have given up
SLOWEST_LOOP, WORST_LOOP = 50.0, 100.0  # ms: p99, and the worst
MOST_GROWTH: Final = 10.0  # percent of memory, from the end of the first quarter on
_ID: Final = re.compile(r"[Oo]rder (\w{8})")


class LabelScene(msgspec.Struct, frozen=True, kw_only=True):
    users: int
    seconds: float
    every: float = 30.0  # seconds between two messages of a user, on average
    orders: float = 0.03  # share of messages that are orders
    label_seconds: float | None = None  # of work; None: what keeps half a core busy, 2 at most
    blocking: bool = False
    seed: int = 0

    @property
    def rate(self) -> Rate:
        """Of the bot: Telegram's, or twice what these people need."""
        return Rate(max(30, math.ceil(2 * (1 + self.orders) * self.users / self.every)), 1)

    @property
    def work(self) -> float:
        """Seconds of work for a label."""
        ordered = self.orders * self.users / self.every  # in a second
        if self.label_seconds is not None:
            return self.label_seconds
        return round(min(LONGEST_LABEL, LABEL_CORES / ordered), 3) if ordered else LONGEST_LABEL

    def limits(self) -> Limits:
        return Limits(bot=self.rate, private=CHAT)

    def environment(self, url: str, carrier: str, store: str) -> dict[str, str]:
        """Return the settings of the bot's process."""
        return {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "TELEGRAM_API_URL": url,
            "TIDEGATE_STORE": store,
            "TIDEGATE_BOT_RATE": str(self.rate),
            "TIDEGATE_CHAT_RATE": str(CHAT),
            "LABEL_SECONDS": str(self.work),
            "LABEL_CARRIER_URL": carrier,
        }


class Customer:
    """One user. Answers come in the order of the messages; labels when they are ready."""

    def __init__(
        self, telegram: SimulatedTelegram, bot: SimulatedBot, number: int, scene: LabelScene
    ) -> None:
        self._telegram, self._bot, self._id, self._scene = telegram, bot, number, scene
        self._draw = random.Random(f"{scene.seed}:{number}")
        self.said = self.ordered = self.surplus = 0
        self.open: deque[tuple[float, bool]] = deque()  # when it was said, and whether it is an order
        self.labels: dict[str, float] = {}  # ordered, and not delivered: when
        self.waits, self.label_waits = array("d"), array("d")  # milliseconds
        telegram.world.add_private(bot, number).watchers.append(self._hear)

    async def live(self) -> None:
        clock, draw, every = self._telegram.clock, self._draw, self._scene.every
        await clock.sleep(draw.uniform(0, every))
        while True:
            self._say()
            await clock.sleep(draw.uniform(0.5 * every, 1.5 * every))

    def _say(self) -> None:
        clock, drawn = self._telegram.clock, self._draw.random()
        orders = drawn < self._scene.orders
        text = ORDER if orders else "/orders" if drawn < self._scene.orders + LOOKS else "hello"
        self.said += 1
        self.ordered += orders
        self.open.append((clock.monotonic(), orders))
        self._telegram.world.user_says(self._bot, self._id, text, clock.now())

    def _hear(self, message: Json) -> None:
        now = self._telegram.clock.monotonic()
        if "document" in message:
            self._hear_label(message, now)
        elif not self.open:
            self.surplus += 1
        else:
            said_at, is_order = self.open.popleft()
            self.waits.append(1000 * (now - said_at))
            if is_order and (found := _ID.search(message["text"])):
                self.labels[found[1]] = said_at

    def _hear_label(self, message: Json, now: float) -> None:
        found = _ID.search(message["caption"])
        ordered_at = self.labels.pop(found[1], None) if found else None
        if found is None or ordered_at is None:
            self.surplus += 1  # a second time, or before it was taken
            return
        self.label_waits.append(1000 * (now - ordered_at))

    @property
    def is_owed(self) -> bool:
        return bool(self.open or self.labels)


class LabelCrowd:
    """All users of a scene."""

    def __init__(self, telegram: SimulatedTelegram, scene: LabelScene) -> None:
        bot = telegram.world.bot(TOKEN)
        assert bot is not None
        self._telegram, self._scene = telegram, scene
        self.customers = [Customer(telegram, bot, FIRST + number, scene) for number in range(scene.users)]
        self._seconds = 0.0

    async def live(self) -> None:
        """Until the time is over; then wait for the last answers and labels."""
        clock = self._telegram.clock
        started = clock.monotonic()
        lives = [asyncio.create_task(one.live()) for one in self.customers]
        await clock.sleep(self._scene.seconds)
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        self._seconds = clock.monotonic() - started
        over = clock.monotonic() + GRACE
        while any(one.is_owed for one in self.customers) and clock.monotonic() < over:
            await clock.sleep(0.05)

    def report(self) -> dict[str, Any]:
        """In the vocabulary of all reports. `late`: answered after more than a second."""
        people, scene = self.customers, self._scene
        waits = sorted(wait for one in people for wait in one.waits)
        labels = sorted(wait for one in people for wait in one.label_waits)
        unanswered = sum(len(one.open) for one in people)
        seen = self._telegram.report()
        return {
            "users": scene.users,
            "every": scene.every,
            "label_seconds": scene.work,
            "blocking": scene.blocking,
            "sent": sum(one.said for one in people),
            "answered": len(waits),
            "unanswered": unanswered,
            "late": sum(wait > IN_TIME for wait in waits),
            "timeouts": unanswered + sum(wait > TIMEOUT for wait in waits),
            "p50_ms": percentile(waits, 0.5),
            "p99_ms": percentile(waits, 0.99),
            "max_ms": percentile(waits, 1.0),
            "labels_ordered": sum(one.ordered for one in people),
            "labels_delivered": len(labels),
            "label_p50_ms": percentile(labels, 0.5),
            "label_max_ms": percentile(labels, 1.0),
            "surplus": sum(one.surplus for one in people),
            **{name: seen[name] for name in ("requests", "refused", "avg_rps", "peak_rps")},
            "bot_limit": str(scene.rate),
            "chat_limit": str(CHAT),
            "seconds": round(self._seconds, 1),
            "seed": scene.seed,
        }


def judge_labels(found: dict[str, Any]) -> dict[str, Any]:
    """Add `passed`, and `failed`: the names of the demands that were not met."""
    flaws = ("unanswered", "late", "timeouts", "surplus", "refused")
    after_quarter, at_end = found["rss_mb"][1], found["rss_mb"][-1]
    growth = round(100 * (at_end - after_quarter) / after_quarter, 1) if after_quarter else 0.0
    failed = {flaw: found[flaw] > 0 for flaw in flaws} | {
        "answered": found["answered"] == 0,
        "labels_delivered": found["labels_delivered"] != found["labels_ordered"],
        "loop_p99_ms": found["loop_p99_ms"] >= SLOWEST_LOOP,
        "loop_max_ms": found["loop_max_ms"] >= WORST_LOOP,
        "growth_percent": growth > MOST_GROWTH,
    }
    names = [name for name, is_bad in failed.items() if is_bad]
    return found | {"growth_percent": growth, "failed": names, "passed": not names}
