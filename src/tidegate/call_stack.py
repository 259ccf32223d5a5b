"""Stacks of running threads and waiting tasks: the place in the application's own files, the call that is
made there, and the handler and the chat for which it is made.
"""

import ast
import asyncio
import linecache
import os
import re
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import msgspec

MAX_FRAMES: Final = 100
MAX_CALL: Final = 80  # characters
NOT_KNOWN: Final = "at a place that is not known"
_LOOP_FUNCTIONS: Final = frozenset(("_run", "_run_once"))  # of asyncio, around every callback

_LIBRARIES: Final = (f"{sysconfig.get_path('stdlib')}{os.sep}", f"{Path(__file__).parent}{os.sep}", "<frozen")
_INSTALLED: Final = re.compile(r"[\\/](?:site|dist)-packages[\\/]")

# Functions of libraries that have an update, or a handler, among their variables: by module and name.
_HANDLER_FRAMES: Final = {
    ("aiogram.dispatcher.event.handler", "call"),
    ("telegram.ext._handlers.basehandler", "handle_update"),
}
_UPDATE_FRAMES: Final = {
    ("aiogram.dispatcher.dispatcher", "feed_update"),
    ("aiogram.dispatcher.dispatcher", "feed_raw_update"),
    ("telegram.ext._application", "process_update"),
}
_INBOX_FRAME: Final = ("tidegate.inbound.dispatcher", "_call")


class StackReading(msgspec.Struct, frozen=True):
    """The text of a stack, without the objects in it."""

    place: str | None = None  # folder/file.py:line, of the application if it is in the stack
    function: str | None = None  # in which that line is
    call: str | None = None  # that is made there
    handler: str | None = None
    outer: str | None = None  # the outermost function of the application, such as that of a task
    chat: int | None = None
    lines: tuple[str, ...] = ()  # "folder/file.py:line function", the innermost last
    step: int = 0  # names the callback of the loop that runs

    @property
    def where(self) -> str:
        """The place and the call, for a line of the log."""
        if self.place is None:
            return NOT_KNOWN
        return f"in {self.place} {self.call}" if self.call else f"in {self.place}"


def read_stack(frames: Sequence[FrameType]) -> StackReading:
    """Read a stack, the innermost frame last. Looks into variables of frames that it knows, and no others."""
    if not frames:
        return StackReading()
    handler, chat = _handler_and_chat(frames)
    home = _package(getattr(handler, "__module__", None))  # a code object has none
    ours = [at for at, frame in enumerate(frames) if _is_ours(frame, home)]
    at = ours[-1] if ours else len(frames) - 1
    inner = frames[at + 1] if at + 1 < len(frames) else None
    return StackReading(
        place=f"{short_path(frames[at].f_code.co_filename)}:{frames[at].f_lineno}",
        function=frames[at].f_code.co_name,
        call=_call_in(frames[at]) or (None if inner is None else _name_of(inner)),
        handler=function_name(handler) if handler is not None else None,
        outer=frames[ours[0]].f_code.co_name if ours else None,
        chat=chat,
        lines=tuple(_line(frame) for frame in frames),
        step=id(frames[0]),
    )


def thread_frames(innermost: FrameType | None, base: FrameType | None = None) -> list[FrameType]:
    """Return the frames of a running thread above `base`, without those of the loop, the innermost last."""
    frames: list[FrameType] = []
    while innermost is not None and innermost is not base and len(frames) < MAX_FRAMES:
        frames.append(innermost)
        innermost = innermost.f_back
    while frames and is_loop_frame(frames[-1]):
        frames.pop()
    return frames[::-1]


def is_loop_frame(frame: FrameType) -> bool:
    """Return whether it belongs to asyncio's loop, below the callback that runs."""
    module = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_name in _LOOP_FUNCTIONS and module.startswith("asyncio.")


def task_frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames of a task that waits, the innermost last."""
    return list(islice(_awaited_frames(task.get_coro()), MAX_FRAMES))


def is_own_file(path: str) -> bool:
    """Return whether a file is the application's: no library's, Python's or Tidegate's."""
    return not _INSTALLED.search(path) and not path.startswith(_LIBRARIES)


def short_path(path: str) -> str:
    """The file and its folder."""
    return "/".join(path.replace("\\", "/").split("/")[-2:])


def function_name(function: object) -> str:
    """The name of a function, also one that is wrapped or partial, or of the class of an object."""
    while (inner := getattr(function, "__wrapped__", None) or getattr(function, "func", None)) is not None:
        function = inner
    name = getattr(function, "__name__", None) or getattr(function, "co_name", None)
    return name or type(function).__name__


def _awaited_frames(waiting: Any) -> Iterator[FrameType]:  # noqa: ANN401  (a coroutine, of whichever kind)
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:
            return
        yield frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)


def _is_ours(frame: FrameType, home: str | None) -> bool:
    """A bot may be installed as a package itself: then the handler's package is the application's."""
    if is_own_file(frame.f_code.co_filename):
        return True
    return home is not None and _package(frame.f_globals.get("__name__")) == home


def _package(module: object) -> str | None:
    return module.partition(".")[0] if isinstance(module, str) else None


def _line(frame: FrameType) -> str:
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"


def _name_of(frame: FrameType) -> str:
    package = _package(frame.f_globals.get("__name__"))
    return f"{package}.{frame.f_code.co_name}" if package else frame.f_code.co_name


def _call_in(frame: FrameType) -> str | None:
    """Return the function that the running expression calls, as the source spells it; None if it calls none.

    The source may have changed since it was loaded: then the answer is wrong, or None.
    """
    code = frame.f_code
    position = next(islice(code.co_positions(), frame.f_lasti // 2, None), None)
    if position is None or None in position:
        return None
    first, last, begin, end = cast("tuple[int, int, int, int]", position)
    lines = [linecache.getline(code.co_filename, at, frame.f_globals) for at in range(first, last + 1)]
    source = [line.encode() for line in lines]  # columns are counted in bytes
    source[-1] = source[-1][:end]
    source[0] = source[0][begin:]
    try:
        expression = ast.parse(b"(" + b"".join(source) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if isinstance(expression, ast.Await):
        expression = expression.value
    return _dotted(expression.func)[:MAX_CALL] if isinstance(expression, ast.Call) else None


def _dotted(function: ast.expr) -> str:
    """`requests.post`; of a longer expression without arguments: `session().get`."""
    match function:
        case ast.Name(name):
            return name
        case ast.Attribute(owner, name):
            return f"{_dotted(owner)}.{name}"
        case ast.Call(called):
            return f"{_dotted(called)}()"
        case _:
            return "…"


def _handler_and_chat(frames: Sequence[FrameType]) -> tuple[object | None, int | None]:
    """Return the innermost handler, of a bot library or of the gate, and the chat of its update."""
    handler: object | None = None
    chat: int | None = None
    inner: FrameType | None = None
    for frame in reversed(frames):
        key, found = (frame.f_globals.get("__name__"), frame.f_code.co_name), None
        if key in _HANDLER_FRAMES and handler is None:
            handler, found = _of_handler(frame.f_locals)
        elif key in _UPDATE_FRAMES:
            found = _chat_of(frame.f_locals.get("update"))
        elif key == _INBOX_FRAME:
            found = _chat_of_item(frame.f_locals.get("claimed"))
            if handler is None and inner is not None and is_own_file(inner.f_code.co_filename):
                handler = inner.f_code  # a function of the application that the gate itself calls
        inner = frame
        chat = chat if chat is not None else found
    return handler, chat


def _of_handler(variables: Mapping[str, Any]) -> tuple[object | None, int | None]:
    owner = variables.get("self")
    if hasattr(owner, "magic"):  # aiogram calls its filters by the same function
        return None, None
    given = variables.get("args") or (variables.get("update"),)
    return getattr(owner, "callback", None), _chat_of(given[0] if isinstance(given, tuple) else None)


def _chat_of(update: object) -> int | None:
    """Return the chat of an update or an event of a bot library; of a private button, its user."""
    if isinstance(update, Mapping):
        return _chat_of_json(update)
    try:
        for path in ("effective_chat", "chat", "message.chat", "event.chat", "event.message.chat"):
            if isinstance(found := getattr(_follow(update, path), "id", None), int):
                return found
        user = getattr(_follow(update, "from_user") or _follow(update, "event.from_user"), "id", None)
    except Exception:  # noqa: BLE001  (properties of a library, read in another thread: a hint, not more)
        return None
    return user if isinstance(user, int) else None


def _follow(thing: object, path: str) -> object | None:
    found: object | None = thing
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _chat_of_item(claimed: object) -> int | None:
    body = getattr(getattr(claimed, "item", None), "body", None)
    if not isinstance(body, bytes):
        return None
    try:
        return _chat_of_json(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _chat_of_json(update: object) -> int | None:
    contents = update.values() if isinstance(update, Mapping) else ()
    for content in (one for one in contents if isinstance(one, Mapping)):
        for holder in (content, content.get("message")):
            chat = holder.get("chat") if isinstance(holder, Mapping) else None
            if isinstance(chat, Mapping) and isinstance(chat.get("id"), int):
                return int(chat["id"])
    return None
