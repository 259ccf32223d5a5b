"""Plays a flow against the simulated Telegram, in virtual time: no bot, no token, no waiting.

What a line does:

| line | |
|---|---|
| `Hello`, `/start` | the user writes it; what a shown button or key reads, or its number, presses it |
| `:say 5` | the user writes a text that would press a button |
| `:photo TEXT`, `:document TEXT` | the user sends a file with this caption |
| `:contact`, `:location` | the user shares them |
| `:done JSON`, `:failed` | the work that was begun first ends so |
| `:met JSON`, `:gone`, `:reversed` | polling finds it |
| `:signal NAME JSON` | the application signals it |
| `:begin JSON` | the application begins a session with these data |
| `:wait 15m` | time passes |
| `:state` | the state and the data are shown |
| `< TEXT` | the next message must hold this text; `<` alone: there is no other message |
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, Literal, Self, get_args

import msgspec

from tidegate.delivery.transport import ApiAnswer
from tidegate.errors import BadInputError
from tidegate.flows.events import Polled
from tidegate.flows.executor import FlowRunner, SessionKey, WorkContext
from tidegate.flows.flow import Flow
from tidegate.flows.model import FlowError
from tidegate.flows.telegram_updates import FlowReader
from tidegate.gate import Tidegate
from tidegate.outbox.message_times import duration
from tidegate.polling.batch import BatchPoller
from tidegate.settings import Settings
from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.telegram.people import HOME
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.flow_sessions import MemoryFlowSessions

PolledKind = Literal["met", "gone", "reversed"]

TOKEN: Final = "42:preview"  # noqa: S105  (of a bot that exists in the simulator only)
USER: Final = 1001
SETTLES: Final = 0.1  # seconds in which what an event caused has begun
_FILES: Final = ("photo", "document", "video", "animation", "audio", "voice", "sticker")


class Heard(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message as the user sees it. `how`: new, changed, the answer to a press, or deleted."""

    text: str
    how: Literal["new", "edited", "answer", "deleted"] = "new"
    files: tuple[str, ...] = ()  # kind and name
    buttons: tuple[tuple[str, ...], ...] = ()
    links: tuple[str, ...] = ()  # the addresses of buttons that open one
    keys: tuple[str, ...] = ()  # below the chat


class Played(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a play and its outcome. `problem`: why it could not be done, or what was expected instead."""

    line: str
    heard: tuple[Heard, ...] = ()
    state: str | None = None
    waits_for: tuple[str, ...] = ()  # work
    problem: str | None = None
    note: str | None = None


class FlowPreview:
    """One user in one flow. Use it as a context manager, in a loop with virtual time."""

    def __init__(
        self, flow: Flow, clock: VirtualClock, *, name: str | None = None, language: str | None = None
    ) -> None:
        flow = flow.flat
        self._clock = clock
        self._telegram = SimulatedTelegram(clock)
        self._heard: list[Heard] = []  # since the last line
        self._unread: deque[Heard] = deque()  # what no expectation has matched yet
        wire = _ListeningWire(self._telegram, clock, self._note)
        # The limits of the environment are for real bots.
        self._gate = Tidegate("memory://", clock=clock, wire=wire, settings=Settings.model_construct())
        self._gate.add_bot(TOKEN)
        self._works: deque[tuple[str, asyncio.Future[Any]]] = deque()
        self._runner = FlowRunner(
            flow,
            self._gate,
            work={state.run.name: partial(self._work, state.run.name) for state in flow.states if state.run},
            pollers={state.poll.name: _SILENT_POLLER for state in flow.states if state.poll},
            tries=1,
        )
        self._sessions = MemoryFlowSessions(flow.name)
        bot = self._telegram.world.bot(TOKEN)
        assert bot is not None  # noqa: S101  (an open world takes any well-formed token)
        self._reader = FlowReader(flow, bot.id, bot.username)
        self._key = SessionKey(bot.id, USER, USER)
        self._person = Person(self._telegram, bot, USER, language=language)
        if name is not None:
            self._telegram.world.user(USER).first_name = name
        self._shows_buttons = False  # the latest message
        self._updates_read = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._gate)
        await self._stack.enter_async_context(self._gate.worker(reminders=False))
        await self._runner.start(self._sessions)
        self._stack.push_async_callback(self._runner.stop)
        self._stack.callback(lambda: [outcome.cancel() for _, outcome in self._works])
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def labels(self) -> list[str]:
        """Return the labels that can be pressed by number, from 1 on: those that the latest message shows.

        Keys stay below the chat until they are taken away. Buttons of older messages go by their text.
        """
        keys = self._person.keys()
        return [*([] if keys and not self._shows_buttons else self._person.labels()), *keys]

    async def play(self, line: str) -> Played:
        """Do what a line says, and wait until all that it leads to has arrived."""
        self._heard.clear()
        note = problem = None
        try:
            note = await self._do(line.strip())
            await self._settle()
        except (BadInputError, LookupError, FlowError) as error:
            problem = str(error.args[0]) if isinstance(error, LookupError) else str(error)
        self._unread += (heard for heard in self._heard if heard.how != "deleted")
        session = (await self._sessions.load(self._key)).session
        state = None if session is None else session.state
        return Played(line, tuple(self._heard), state, tuple(name for name, _ in self._works), problem, note)

    # What a line says

    async def _do(self, line: str) -> str | None:
        if line.startswith("<"):
            self._expect(line[1:].strip())
            return None
        word, _, rest = line.partition(" ")
        if word == ":state":
            return await self._standing()
        if (act := self._acts.get(word)) is not None:
            await act(rest.strip())
        elif word.startswith(":"):
            raise BadInputError(f"{word} is no command: there are {', '.join(self._acts)} and :state")
        else:
            self._press_or_say(line)
        return None

    @property
    def _acts(self) -> Mapping[str, Callable[[str], Awaitable[object]]]:
        files = {f":{kind}": partial(self._send_file, kind) for kind in _FILES}
        polled = {f":{kind}": partial(self._poll, kind) for kind in get_args(PolledKind)}
        return {
            ":say": self._say,
            ":contact": self._share_contact,
            ":location": self._share_location,
            **files,
            ":done": self._end_work,
            ":failed": self._fail_work,
            **polled,
            ":signal": self._signal,
            ":begin": self._begin,
            ":wait": self._wait,
        }

    def _expect(self, text: str) -> None:
        if not text:
            if self._unread:
                raise BadInputError(f"no other message was expected, and there is {self._unread[0].text!r}")
            return
        if not self._unread:
            raise BadInputError(f"a message with {text!r} was expected, and there is none")
        heard = self._unread.popleft()
        if text not in heard.text:
            raise BadInputError(f"a message with {text!r} was expected, and there is {heard.text!r}")

    async def _standing(self) -> str:
        session = (await self._sessions.load(self._key)).session
        if session is None:
            return "no session"
        return f"{session.state} {msgspec.json.encode(session.data).decode()}"

    def _press_or_say(self, line: str) -> None:
        buttons, names, keys = self._person.buttons(), self._person.labels(), self._person.keys()
        labels = self.labels
        number = int(line) - 1 if line.isascii() and line.isdecimal() else len(labels)
        if 0 <= number < len(labels) - len(keys):
            self._person.presses(buttons[number])
        elif 0 <= number < len(labels):
            self._person.taps(labels[number])
        elif line in names:
            self._person.presses(buttons[names.index(line)])
        elif line in keys:
            self._person.taps(line)
        else:
            self._person.says(line)

    async def _say(self, text: str) -> None:
        self._person.says(text)

    async def _send_file(self, kind: str, caption: str) -> None:
        self._person.sends_file(kind, f"a {kind}", b"of the preview", caption or None)

    async def _share_contact(self, number: str) -> None:
        self._person.shares_contact(number or f"+{USER}")

    async def _share_location(self, place: str) -> None:
        try:
            latitude, longitude = map(float, place.split()) if place else HOME
        except ValueError:
            raise BadInputError(f"{place!r} is no place: write :location 52.5 13.4") from None
        self._person.shares_location(latitude, longitude)

    async def _end_work(self, result: str) -> None:
        self._outcome().set_result(_json(result) if result else None)

    async def _fail_work(self, reason: str) -> None:
        self._outcome().set_exception(RuntimeError(reason or "as the preview says"))

    def _outcome(self) -> "asyncio.Future[Any]":
        if not self._works:
            raise BadInputError("no work has begun")
        return self._works.popleft()[1]

    async def _work(self, name: str, _: WorkContext) -> Any:  # noqa: ANN401  (what the line says)
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._works.append((name, outcome))
        return await outcome

    async def _poll(self, kind: PolledKind, value: str) -> None:
        session = (await self._sessions.load(self._key)).session
        if session is None or session.held is None:
            raise BadInputError("the session waits for no poll")
        held, cause = session.held, self._cause()
        await self._runner.handle(
            self._key, Polled(held.poll, held.key, kind, _json(value) if value else None, **cause)
        )

    async def _signal(self, words: str) -> None:
        name, _, value = words.partition(" ")
        if not await self._runner.signal(self._key, name, _json(value.strip()) if value else None):
            raise BadInputError("there is no session that could hear it")

    async def _begin(self, data: str) -> None:
        fields = _json(data) if data else {}
        if not isinstance(fields, dict):
            raise BadInputError(f"{data!r} are no fields: write a JSON object")
        await self._runner.begin(self._key, fields, language=self._telegram.world.user(USER).language_code)

    async def _wait(self, span: str) -> None:
        await self._clock.sleep(duration(":wait", span))

    def _cause(self) -> dict[str, Any]:
        return {"id": f"preview{self._clock.monotonic()}", "at": self._clock.now()}

    # What it leads to

    async def _settle(self) -> None:
        """Bring the updates in, and wait until everything is sent. Time passes as at Telegram."""
        answer = await self._telegram.call(TOKEN, "getUpdates", {"offset": self._updates_read + 1})
        for update in answer.body["result"]:
            self._updates_read = number = update["update_id"]
            now = self._clock.now()
            if "message" in update:
                found = self._reader.message(update["message"], number, now)
            else:
                found = self._reader.press(update["callback_query"], number, now)
            if found is None or not await self._runner.handle(found.key, found.event):
                raise BadInputError("the flow does not take it: no session has begun")
        await self._clock.sleep(SETTLES)
        await self._gate.drained()
        await self._clock.sleep(SETTLES)

    def _note(self, method: str, params: Mapping[str, Any]) -> None:
        """After a call that has succeeded."""
        if method == "answerCallbackQuery" and params.get("text"):
            self._heard.append(Heard(params["text"], "answer"))
        elif method == "deleteMessage":
            self._heard.append(Heard("", "deleted"))
        self._heard += map(self._seen, self._person.heard)
        self._person.heard.clear()

    def _seen(self, message: Mapping[str, Any]) -> Heard:
        rows = message.get("reply_markup", {}).get("inline_keyboard", [])
        self._shows_buttons = bool(rows)
        return Heard(
            message.get("text") or message.get("caption") or "",
            "edited" if "edit_date" in message else "new",
            tuple(self._file_names(message)),
            tuple(tuple(button["text"] for button in row) for row in rows),
            tuple(button["url"] for row in rows for button in row if "url" in button),
            tuple(self._person.keys()),
        )

    def _file_names(self, message: Mapping[str, Any]) -> Iterator[str]:
        for kind in _FILES:
            if (found := message.get(kind)) is not None:
                record = found[-1] if isinstance(found, list) else found
                file = self._telegram.world.files.get(record["file_id"])
                yield kind if file is None else f"{kind} {file.name}"
                return


class _ListeningWire(TelegramWire):
    def __init__(
        self,
        telegram: SimulatedTelegram,
        clock: VirtualClock,
        listen: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        super().__init__(telegram, clock)
        self._listen = listen

    async def call(self, token: str, method: str, params: Mapping[str, Any], **options: Any) -> Any:  # noqa: ANN401
        answer = await super().call(token, method, params, **options)
        if isinstance(answer, ApiAnswer) and answer.body is not None and answer.body.get("ok"):
            self._listen(method, params)
        return answer


async def _nothing(_: Sequence[str]) -> dict[str, Any]:
    return {}


_SILENT_POLLER: Final = partial(BatchPoller, _nothing, 3_600.0)


def _json(text: str) -> Any:  # noqa: ANN401  (any JSON, or a plain text)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
