"""Slots in Redis, for all processes with the same API and token; and what Redis has to hear later."""

import hashlib
import logging
import secrets
from collections import deque
from importlib.resources import files
from typing import Any, Final, NamedTuple

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.model import Rate
from tidegate.outbox.redis.link import Argument, Link
from tidegate.outbox.redis.scripts import Script

log = logging.getLogger("tidegate.upstream")

PATIENCE: Final = 1.0  # seconds that Redis has for a step
PROBE: Final = 0.25  # the same while it is away: nobody is served meanwhile
AGAIN: Final = 1.0  # seconds until Redis is asked again after it did not answer


def _load() -> dict[str, Script]:
    ours, pacing = files("tidegate.upstream.limiter"), files("tidegate.pacing.redis")
    shared = [(pacing / "learned.lua").read_text(), (ours / "slots.lua").read_text()]
    scripts = {}
    for step in ("take", "settle", "close", "adopt"):
        source = "\n".join([*shared, (ours / f"{step}.lua").read_text()])
        scripts[step] = Script(source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324  (Redis's choice)
    return scripts


SCRIPTS: Final = _load()


class Taken(NamedTuple):
    """Slots for those who may go now, and the seconds until asking again is of use."""

    foreground: list[str]
    background: list[str]
    wait: float


class SharedSlots:
    """The rate and the lockout are those that Redis told last.

    A step that Redis does not take is owed: what was settled meanwhile is told when it is back. So is what a
    Redis has forgotten, which is seen by its mark: slots in flight, slots that cool, and the lockout.
    """

    def __init__(self, rule: Rate, link: Link, clock: Clock, name: str, *, lease: float) -> None:
        self.rate = rule
        self.held: deque[str] = deque()  # by this process, the oldest first
        self.closed_until = 0.0
        self.away_until: float | None = None
        self._rule, self._link, self._clock = rule, link, clock
        self._lease = lease + rule.seconds
        self._title = name
        self._keys = [link.key(f"upstream:{name}:{part}") for part in ("held", "cooling", "state")]
        self._prefix, self._number = f"{link.me}:{secrets.token_hex(4)}:", 0
        self._owed: dict[str, float] = {}  # slots that were settled without Redis, and when each is free
        self._cooling: dict[str, float] = {}  # of this process, and when each is free
        self._estranged = False  # Redis may not know what this process holds
        self._mark = ""  # of the state in Redis that knows it

    def introduce(self, title: str, longest: float) -> None:
        self._title, self._lease = title, longest + self._rule.seconds

    def new(self) -> str:
        """The name of a slot that this process takes alone."""
        self._number += 1
        return f"{self._prefix}{self._number}"

    async def take(self, foreground: int, background: int) -> Taken | None:
        """None: Redis cannot be asked now."""
        if self._is_away():
            return None
        first, self._number = self._number + 1, self._number + foreground + background
        names = [f"{self._prefix}{number}" for number in range(first, self._number + 1)]
        reply = await self._try("take", foreground, background, self._lease, self._prefix, first)
        if reply is None:
            # It may have given them all the same.
            self._owed.update(dict.fromkeys(names, self._clock.monotonic()))
            return None
        middle, end = reply[0], reply[0] + reply[1]
        return Taken(names[:middle], names[middle:end], float(reply[2]))

    async def settle(self, slot: str, *, answered: bool) -> None:
        now = self._clock.monotonic()
        free_at = now + (self.rate.seconds if answered else 0.0)
        if answered:
            self._cool(slot, free_at, now)
        if await self._step("settle", "answered" if answered else "never_left", slot) is None:
            self._owed[slot] = free_at

    async def close(self, seconds: float, *, refused: bool) -> None:
        self.closed_until = max(self.closed_until, self._clock.monotonic() + seconds)
        await self._step("close", seconds, int(refused))

    def _cool(self, slot: str, free_at: float, now: float) -> None:
        while self._cooling and self._cooling[first := next(iter(self._cooling))] <= now:
            del self._cooling[first]
        self._cooling[slot] = free_at

    async def _step(self, step: str, *args: Argument) -> list[Any] | None:
        return None if self._is_away() else await self._try(step, *args)

    async def _try(self, step: str, *args: Argument) -> list[Any] | None:
        try:
            async with self._clock.timeout(PROBE if self._estranged else PATIENCE):
                if self._estranged:
                    await self._adopt()
                reply = await self._run(step, *args)
                if self._forgot(reply):
                    await self._adopt()
                    reply = await self._run(step, *args)
        except (StoreError, TimeoutError) as error:
            self._failed(error)
            return None
        return reply

    def _forgot(self, reply: list[Any]) -> bool:
        """Whether this is another state than the one that was told. Until then none of it is believed."""
        mark: str = reply[-1].decode()
        if self._mark in ("", mark):
            self._mark = mark
        return self._mark != mark

    async def _adopt(self) -> None:
        now = self._clock.monotonic()
        owed = list(self._owed)
        settled = {**self._cooling, **self._owed}
        words = [word for slot, free_at in settled.items() for word in (slot, max(0.0, free_at - now))]
        closed = max(0.0, self.closed_until - now)
        reply = await self._run("adopt", self._lease, closed, len(self.held), *self.held, *words)
        for slot in owed:
            self._owed.pop(slot, None)
        if self._estranged:
            log.warning("the limit of %s is counted in Redis again", self._title)
        elif self.held or closed or any(map(float, words[1::2])):
            log.warning("Redis had forgotten the limit of %s: it was told what is known here", self._title)
        self._estranged, self.away_until, self._mark = False, None, reply[-1].decode()

    async def _run(self, step: str, *args: Argument) -> list[Any]:
        rule = (self._rule.count, self._rule.seconds)
        reply: list[Any] = await self._link.script(SCRIPTS[step], self._keys, *rule, self._mark, *args)
        count, seconds, closed = map(float, reply[-4:-1])
        self.rate = Rate(int(count), seconds)
        self.closed_until = max(self.closed_until, self._clock.monotonic() + closed)
        return reply

    def _is_away(self) -> bool:
        now = self._clock.monotonic()
        if self.away_until is None:
            return False
        if now < self.away_until:
            return True
        self.away_until = now + PATIENCE  # one asks whether it is back; the others do not wait for that
        return False

    def _failed(self, error: Exception) -> None:
        now = self._clock.monotonic()
        if not self._estranged:
            reason = str(error) or f"no answer within {PATIENCE:g} s"
            text = (
                "the limit of %s is counted in this process alone, at half of it, until Redis answers: %s (if"
                " more than two processes share it, they may exceed it together)"
            )
            log.warning(text, self._title, reason)
        self._estranged, self.away_until = True, now + AGAIN
        # What is older, no lease holds any more.
        self._owed = {slot: at for slot, at in self._owed.items() if at > now - self._lease}
