"""What is said of a handler that failed: one line, with the place, without a token."""

import asyncio
import re
import traceback
from types import CodeType
from typing import Any, Final

_TOKEN: Final = re.compile(r"(\d{1,15}):[\w-]{20,}")
_LONGEST: Final = 300  # characters


def reason_of(error: BaseException) -> str:
    """Its kind, its text and the innermost place in a file that is not a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if _is_own(frame.filename)] or list(frames)
    text = discreet(f"{type(error).__name__}: {_text_of(error)}")
    return f"{text} ({_short(ours[-1].filename)}:{ours[-1].lineno})" if ours else text


def told(error: BaseException) -> str:
    """Where it came from, for whoever mends it. The address of a call may hold a token; this does not."""
    return _TOKEN.sub(r"\1:…", "".join(traceback.format_exception(error)).rstrip())


def where_it_hangs(task: asyncio.Task[Any]) -> str:
    """Where a task that waits has come to, in the innermost file that is not a library's."""
    found = "at a place that is not known"
    waiting: Any = task.get_coro()
    while waiting is not None and (frame := _frame(waiting)) is not None:
        code: CodeType = frame.f_code
        if _is_own(code.co_filename):
            found = f"in {code.co_name} ({_short(code.co_filename)}:{frame.f_lineno})"
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return found


def discreet(text: str) -> str:
    """One line of bounded length, and no token in it."""
    plain = text.encode(errors="backslashreplace").decode()  # no store takes half a character
    return _TOKEN.sub(r"\1:…", " ".join(plain.split()))[:_LONGEST]


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (whatever its author did)
        return "its text cannot be had"


def _frame(waiting: object) -> Any:  # noqa: ANN401  (a frame, of whichever kind)
    return getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)


def _is_own(path: str) -> bool:
    return not any(part in path for part in ("site-packages", "/asyncio/", "/tidegate/"))


def _short(path: str) -> str:
    """The file and its folder."""
    return "/".join(path.replace("\\", "/").split("/")[-2:])
