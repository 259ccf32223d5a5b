"""The simulated Telegram in this process: the Bot API with its limits, faults and delays."""

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from tidegate.clock import Clock
from tidegate.delivery.request_body import files_in, inspect_file, replace_files
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.sim.faults import LONGEST_SILENCE, PERFECT, ConnectionCut, Faults, FaultySimulator
from tidegate.sim.telegram.call import MethodCall, Upload
from tidegate.sim.telegram.entities import Json, SimulatedBot
from tidegate.sim.telegram.flood_control import FloodControl, Limits
from tidegate.sim.telegram.methods import METHODS
from tidegate.sim.telegram.parameters import (
    LARGEST,
    NOT_FOUND,
    UNAUTHORIZED,
    UNKNOWN_METHOD,
    TelegramApiError,
    to_int,
)
from tidegate.sim.telegram.request_log import LoggedCall, TelegramRequestLog
from tidegate.sim.telegram.update_delivery import LongPolling, Post, WebhookDelivery
from tidegate.sim.telegram.world import World

LOGGED_CHAT, LOGGED_TEXT = 64, 100  # characters
_NOTHING: Mapping[str, Any] = {}


class TelegramAnswer(msgspec.Struct, frozen=True):
    """One answer. `raw` is set instead of `body` if the answer is not Telegram's JSON."""

    status: int
    body: Json
    raw: bytes | None = None


class SimulatedTelegram(FaultySimulator):
    """A Telegram that counts calls exactly. Close it if webhooks were used."""

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
        self.request_log = TelegramRequestLog()
        self.flood = FloodControl(limits or Limits())
        self.draw = random.Random(seed)  # noqa: S311  (repeatable, not secret)
        self._polling = LongPolling(clock)
        self._webhooks = WebhookDelivery(clock, self._polling, self.handle, post)
        self._waiting_methods = {
            "getUpdates": self._polling.get_updates,
            "setWebhook": self._webhooks.set,
            "deleteWebhook": self._webhooks.delete,
            "getWebhookInfo": self._webhooks.info,
        }
        # Telegram does not care about case.
        self._spellings = {name.lower(): name for name in (*METHODS, *self._waiting_methods)}

    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any] = _NOTHING,
        uploads: Mapping[str, Upload] = _NOTHING,
    ) -> TelegramAnswer:
        """Answer one call, with the delays and faults of the network.

        Raises `ConnectionCut` where a client would lose its connection.
        """
        faults = self._faults
        if faults is PERFECT:
            return await self._arrive(token, method, params, uploads)
        if faults.latency_in:
            await self.clock.sleep(faults.latency_in.seconds(self.draw))
        fate = faults.fate(self.draw)
        if fate != "answered":
            self.request_log.faults[fate] += 1
        if fate == "lost_request":
            raise ConnectionCut("the request was lost")
        if fate == "server_error":
            answer = self._broken(token, method, params)
        else:
            answer = await self._arrive(token, method, params, uploads)
        if fate == "silent":
            await self._silence()
        if faults.latency_out:
            await self.clock.sleep(faults.latency_out.seconds(self.draw))
        if fate == "lost_answer":
            raise ConnectionCut("the answer was lost")
        if fate == "malformed":
            return TelegramAnswer(answer.status, {}, raw=b'{"ok":tru')
        return answer

    def handle(
        self,
        bot: SimulatedBot,
        method: str,
        params: Mapping[str, Any] = _NOTHING,
        uploads: Mapping[str, Upload] = _NOTHING,
    ) -> TelegramAnswer:
        """Answer a call that arrives now, without a network: counted, carried out, logged."""
        name, run = method, METHODS.get(method)
        if run is None:
            name = self._canonical(method)
            run = METHODS.get(name)
        if run is None:
            return self._record(name, bot.id, params, UNKNOWN_METHOD)
        clock, limits = self.clock, self.flood.limits
        now, wall = clock.monotonic(), clock.now()
        call = MethodCall(params, uploads, bot, self.world, self.flood, self.request_log, now, int(wall))
        call.hide_flood = limits.hidden_floods > 0 and self.draw.random() < limits.hidden_floods
        try:
            result = run(call)
        except TelegramApiError as error:
            return self._record(name, bot.id, params, error)
        message_id = result.get("message_id") if isinstance(result, dict) else None
        self.request_log.record(now, _log_entry(wall, bot.id, name, 200, params, message_id))
        return TelegramAnswer(200, {"ok": True, "result": result})

    def refuse(self, token: str, method: str, error: TelegramApiError) -> TelegramAnswer:
        """Answer a call whose parameters could not be read; it counts as a request only."""
        return self._record(self._canonical(method), self._bot_id(token), _NOTHING, error)

    def report(self) -> dict[str, Any]:
        return self.request_log.report() | {
            "peaks": dict(self.flood.peaks),
            "stars": round(self.flood.stars, 1),
            "bots": len(self.world.bots),
            "updates_waiting": sum(len(bot.updates) for bot in self.world.bots.values()),
            "updates_dropped": sum(bot.updates.dropped for bot in self.world.bots.values()),
        }

    def set_limits(self, limits: Limits) -> None:
        """Replace the limits: the windows start empty, peaks and Stars stay."""
        self.flood.change(limits)

    def reset(self) -> None:
        """Reset all counts. Bots, people, chats and webhooks stay."""
        self.request_log.clear()
        self.flood = FloodControl(self.flood.limits)
        for bot in self.world.bots.values():
            bot.updates.dropped = 0

    async def close(self) -> None:
        await self._webhooks.close()

    async def _arrive(
        self, token: str, method: str, params: Mapping[str, Any], uploads: Mapping[str, Upload]
    ) -> TelegramAnswer:
        bot = self.world.bot(token)
        if bot is None:
            error = UNAUTHORIZED if self.world.is_token(token) else NOT_FOUND
            return self._record(self._canonical(method), 0, params, error)
        if method in METHODS:
            return self.handle(bot, method, params, uploads)
        name = self._canonical(method)
        waiting = self._waiting_methods.get(name)
        if waiting is None:
            return self.handle(bot, name, params, uploads)
        now, wall = self.clock.monotonic(), self.clock.now()
        call = MethodCall(params, uploads, bot, self.world, self.flood, self.request_log, now, int(wall))
        try:
            result = await waiting(call)
        except TelegramApiError as error:
            return self._record(name, bot.id, params, error)
        self.request_log.record(self.clock.monotonic(), _log_entry(wall, bot.id, name, 200, params))
        return TelegramAnswer(200, {"ok": True, "result": result})

    def _broken(self, token: str, method: str, params: Mapping[str, Any]) -> TelegramAnswer:
        """Return a failure: half of them are Telegram's JSON, half are a page of a proxy."""
        is_json = self.draw.random() < 0.5  # noqa: PLR2004
        error = (
            TelegramApiError(500, "Internal Server Error")
            if is_json
            else TelegramApiError(502, "Bad Gateway")
        )
        answer = self._record(self._canonical(method), self._bot_id(token), params, error)
        return (
            answer if is_json else TelegramAnswer(502, {}, raw=b"<html><body>502 Bad Gateway</body></html>")
        )

    def _record(
        self, name: str, bot_id: int, params: Mapping[str, Any], error: TelegramApiError
    ) -> TelegramAnswer:
        clock = self.clock
        self.request_log.record(clock.monotonic(), _log_entry(clock.now(), bot_id, name, error.code, params))
        return TelegramAnswer(error.code, error.json())

    def _canonical(self, method: str) -> str:
        return self._spellings.get(method.lower(), "unknown")

    def _bot_id(self, token: str) -> int:
        bot = self.world.bot(token)
        return bot.id if bot is not None else 0

    async def _silence(self) -> NoReturn:
        await self.clock.sleep(LONGEST_SILENCE)
        raise ConnectionCut("no answer came")


def _log_entry(  # noqa: PLR0917  (a record's fields)
    wall: float, bot_id: int, name: str, status: int, params: Mapping[str, Any], message_id: int | None = None
) -> LoggedCall:
    """Return the log entry of a call, with bounded texts."""
    text = params.get("text") or params.get("caption") or ""
    text = text[:LOGGED_TEXT] if isinstance(text, str) else ""
    return LoggedCall(wall, bot_id, _logged_chat(params.get("chat_id")), name, status, message_id, text)


def _logged_chat(chat_id: object) -> int | str | None:
    """Return a number, also if it came as text, as in a form."""
    if isinstance(chat_id, str):
        chat_id = chat_id[:LOGGED_CHAT]
        number = to_int(chat_id)
        return chat_id if number is None or not -LARGEST < number < LARGEST else number
    return chat_id if isinstance(chat_id, int) and -LARGEST < chat_id < LARGEST else None


class TelegramWire:
    """Takes the place of `BotApiClient`. Every file is uploaded, each time."""

    def __init__(self, telegram: SimulatedTelegram, clock: Clock, *, timeout: float = 20.0) -> None:
        self._telegram = telegram
        self._clock = clock
        self._timeout = timeout

    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any],
        *,
        api_url: str,  # noqa: ARG002  (there is one Telegram here)
        deadline: float,
        on_left: Callable[[], None] | None = None,  # noqa: ARG002
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,  # noqa: ARG002
    ) -> ApiAnswer | NoAnswer:
        if self._clock.monotonic() > deadline:
            return NoAnswer(left=False, reason="late")
        if on_written is not None:
            on_written()
        uploads = _NOTHING
        if files_in(method, params):
            params, uploads = await asyncio.to_thread(_with_uploads, method, params)
        try:
            async with self._clock.timeout(self._timeout):
                answer = await self._telegram.call(token, method, params, uploads)
        except ConnectionCut:
            return NoAnswer(left=True, reason="disconnected")
        except TimeoutError:
            return NoAnswer(left=True, reason="timeout")
        return ApiAnswer(answer.status, None if answer.raw is not None else answer.body)

    async def close(self) -> None:
        pass


def _with_uploads(method: str, params: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Upload]]:
    """The parameters with files named, and the files. Raises BadInputError for one that cannot be read."""
    uploads: dict[str, Upload] = {}
    for number, spot in enumerate(files_in(method, params)):
        part, _ = inspect_file(spot.file)
        content = part if isinstance(part, bytes) else Path(part.path).read_bytes()
        name = spot.file.name or Path(spot.file.path or f"file{number}").name
        uploads[f"file{number}"] = Upload(name, "application/octet-stream", content)
    names = iter([f"attach://{name}" for name in uploads])
    return {key: replace_files(value, names) for key, value in params.items()}, uploads
