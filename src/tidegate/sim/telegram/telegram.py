"""Telegram, in this process: the model with its network around it.

`Telegram.call` is what a bot does over the wire; the HTTP server (`http.py`) is a thin layer over it.
All time comes from the clock that is given, so the same code runs in virtual time.
"""

import random
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from tidegate.clock import Clock
from tidegate.sim.telegram.call import ApiError, Call, Upload
from tidegate.sim.telegram.faults import PERFECT, Faults
from tidegate.sim.telegram.ledger import Ledger, LogEntry
from tidegate.sim.telegram.limits import FloodControl, Limits
from tidegate.sim.telegram.methods import METHODS, NOT_FOUND, UNAUTHORIZED
from tidegate.sim.telegram.polling import Polling
from tidegate.sim.telegram.webhooks import Post, Webhooks
from tidegate.sim.telegram.world import Bot, Json, World

LONGEST_SILENCE = 300.0  # no client waits longer
_NOTHING: Mapping[str, Any] = {}


class ConnectionCut(ConnectionError):  # noqa: N818  (an event, as in ConnectionResetError's family)
    """No answer came. Whether the call was counted is what the caller cannot know."""


class Answer(msgspec.Struct, frozen=True):
    """What came back. `raw` is set instead of `body` where it is not Telegram's JSON."""

    status: int
    body: Json
    raw: bytes | None = None


class Telegram:
    """A Telegram that counts. Close it when webhooks were used."""

    def __init__(
        self,
        clock: Clock,
        *,
        limits: Limits | None = None,
        faults: Faults | None = None,
        world: World | None = None,
        seed: int = 0,
        post: Post | None = None,
    ) -> None:
        self.clock = clock
        self.faults = faults or PERFECT
        self.world = world or World()
        self.ledger = Ledger()
        self.flood = FloodControl(limits or Limits())
        self.draw = random.Random(seed)  # noqa: S311  (repeatable, not secret)
        self._polling = Polling(clock)
        self._webhooks = Webhooks(clock, self._polling, self.handle, post)
        self._waiting_methods = {
            "getupdates": self._polling.get_updates,
            "setwebhook": self._webhooks.set,
            "deletewebhook": self._webhooks.delete,
            "getwebhookinfo": self._webhooks.info,
        }

    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any] = _NOTHING,
        uploads: Mapping[str, Upload] = _NOTHING,
    ) -> Answer:
        """One request and its answer, with the delays and faults of the network in between.

        Raises `ConnectionCut` where a real client would see its connection die.
        """
        faults = self.faults
        if faults is PERFECT:
            return await self._arrive(token, method, params, uploads)
        if faults.latency_in:
            await self.clock.sleep(faults.latency_in.seconds(self.draw))
        fate = faults.fate(self.draw)
        if fate != "answered":
            self.ledger.faults[fate] += 1
        if fate == "lost_request":
            raise ConnectionCut("the request was lost")
        answer = (
            self._broken() if fate == "server_error" else await self._arrive(token, method, params, uploads)
        )
        if fate == "silent":
            await self._silence()
        if faults.latency_out:
            await self.clock.sleep(faults.latency_out.seconds(self.draw))
        if fate == "lost_answer":
            raise ConnectionCut("the answer was lost")
        if fate == "malformed":
            return Answer(answer.status, {}, raw=b'{"ok":tru')
        return answer

    def handle(
        self,
        bot: Bot,
        method: str,
        params: Mapping[str, Any] = _NOTHING,
        uploads: Mapping[str, Upload] = _NOTHING,
    ) -> Answer:
        """A call that arrives now, without a network: counted, carried out, entered into the ledger."""
        now = self.clock.now()
        run = METHODS.get(method) or METHODS.get(method.lower())
        message_id = None
        if run is None:
            status, body = 404, NOT_FOUND.json()
        else:
            limits = self.flood.limits
            hide_flood = limits.hidden_floods > 0 and self.draw.random() < limits.hidden_floods
            call = Call(self.world, self.flood, self.ledger, bot, params, uploads, now, hide_flood=hide_flood)
            try:
                result = run(call)
            except ApiError as error:
                status, body = error.code, error.json()
            else:
                status, body = 200, {"ok": True, "result": result}
                if isinstance(result, dict):
                    message_id = result.get("message_id")
        known = method if run is not None else "unknown"
        text = str(params.get("text") or params.get("caption") or "")[:100]
        self.ledger.record(LogEntry(now, bot.id, params.get("chat_id"), known, status, message_id, text))
        return Answer(status, body)

    def report(self) -> dict[str, Any]:
        return self.ledger.report() | {
            "peaks": dict(self.flood.peaks),
            "stars": round(self.flood.stars, 1),
            "bots": len(self.world.bots),
            "updates_waiting": sum(len(bot.updates) for bot in self.world.bots.values()),
        }

    def set_limits(self, limits: Limits) -> None:
        """Play another hypothesis from now on; the windows start empty."""
        self.flood = FloodControl(limits)

    def reset(self) -> None:
        """Forget what was counted. Bots, people, chats and webhooks stay."""
        self.ledger.clear()
        self.set_limits(self.flood.limits)

    async def close(self) -> None:
        await self._webhooks.close()

    async def _arrive(
        self, token: str, method: str, params: Mapping[str, Any], uploads: Mapping[str, Upload]
    ) -> Answer:
        bot = self.world.bot(token)
        if bot is None:
            error = UNAUTHORIZED if self.world.is_token(token) else NOT_FOUND
            return Answer(error.code, error.json())
        if method in METHODS or (waiting := self._waiting_methods.get(method.lower())) is None:
            return self.handle(bot, method, params, uploads)
        call = Call(self.world, self.flood, self.ledger, bot, params, uploads, self.clock.now())
        try:
            return Answer(200, {"ok": True, "result": await waiting(call)})
        except ApiError as error:
            return Answer(error.code, error.json())

    def _broken(self) -> Answer:
        """Half of the failures speak JSON, half come as a page from a proxy before Telegram."""
        if self.draw.random() < 0.5:  # noqa: PLR2004
            return Answer(500, ApiError(500, "Internal Server Error").json())
        return Answer(502, {}, raw=b"<html><body>502 Bad Gateway</body></html>")

    async def _silence(self) -> NoReturn:
        await self.clock.sleep(LONGEST_SILENCE)
        raise ConnectionCut("no answer came")
