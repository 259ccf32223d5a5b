"""The process in which jobs of a pool run: `python -m tidegate.jobs.job_process`, started by process_pool.py.

It reads calls from its standard input and writes replies to what was its standard output, each as MessagePack
behind its length. It ends with its parent: a thread notices the end of the input while a job runs.
"""

import logging
import os
import queue
import signal
import struct
import sys
import threading
from contextlib import suppress
from typing import BinaryIO, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.failure import describe_error, traceback_text
from tidegate.jobs.job import FunctionPlace, run_function
from tidegate.jobs.values import pack_values, unpack_values
from tidegate.scrubber import ScrubbedFormatter

NICENESS: Final = 10  # heavy work makes room for the event loop of the bot
HEADER: Final = struct.Struct("!I")

log = logging.getLogger("tidegate.jobs")


class FunctionCall(msgspec.Struct, frozen=True):
    """A function, where to import it from, and its arguments, packed."""

    place: FunctionPlace
    path: list[str]  # of imports, as in the parent
    values: bytes


class FunctionReply(msgspec.Struct, frozen=True):
    """Its result, packed; or what went wrong. `final`: trying again cannot help."""

    result: bytes | None = None
    error: str | None = None
    final: bool = False


def main() -> None:
    stream, replies = _take_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process
    with suppress(OSError, AttributeError):  # there is no such thing on Windows
        os.nice(NICENESS)
    handler = logging.StreamHandler()
    handler.setFormatter(ScrubbedFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    calls: queue.SimpleQueue[FunctionCall] = queue.SimpleQueue()
    threading.Thread(target=_read_calls, args=(stream, calls), daemon=True).start()
    while True:
        data = msgspec.msgpack.encode(_reply_to(calls.get()))
        replies.write(HEADER.pack(len(data)) + data)
        replies.flush()


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep standard input for calls and standard output for replies, and from the programs that a job starts.

    What they print goes to the standard error. What they read is empty: one that reads its input, such as
    ffmpeg, would take the next calls.
    """
    calls, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return os.fdopen(calls, "rb"), os.fdopen(replies, "wb")


def _read_calls(stream: BinaryIO, calls: "queue.SimpleQueue[FunctionCall]") -> None:
    while len(header := stream.read(HEADER.size)) == HEADER.size:
        [length] = HEADER.unpack(header)
        calls.put(msgspec.msgpack.decode(stream.read(length), type=FunctionCall))
    os._exit(0)  # the parent has gone: it, or the next one, runs the job again


def _reply_to(call: FunctionCall) -> FunctionReply:
    try:
        sys.path[:] = [*call.path, *(entry for entry in sys.path if entry not in call.path)]
        job = call.place.load()
        args, kwargs = unpack_values(call.values)
    except BadInputError as error:
        return FunctionReply(error=str(error), final=True)
    except BaseException as error:  # noqa: BLE001  (whatever the module of the application does)
        return _failure(f"{call.place.module} cannot be imported", error)
    try:
        return FunctionReply(result=pack_values(run_function(job, tuple(args), kwargs)))
    except BaseException as error:  # noqa: BLE001  (also sys.exit: the process is needed for the next job)
        return _failure(f"job {job.name} failed", error)


def _failure(what: str, error: BaseException) -> FunctionReply:
    log.error("%s:\n%s", what, traceback_text(error))
    return FunctionReply(error=describe_error(error))


if __name__ == "__main__":
    main()
