"""A declared job: a function at the top of a module, which other processes import and run."""

import asyncio
import functools
import importlib
import inspect
import runpy
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

import msgspec

from tidegate.errors import BadInputError
from tidegate.jobs.record import JobRecord, NewJob
from tidegate.jobs.values import check_storable, pack_values
from tidegate.model import ChatId
from tidegate.outbox.admission import MAX_TEXT

if TYPE_CHECKING:
    from tidegate.jobs.jobs import Jobs, JobTicket

P = ParamSpec("P")
R = TypeVar("R")

MAX_ARGUMENT_BYTES: Final = 2**20  # an event of a hook fits in
MAX_NAME_LENGTH: Final = 255  # of a job or a key
MAX_RESULT_BYTES: Final = 50_000_000  # as large as a file that a bot may upload
LONGEST_TIMEOUT: Final = 86_400.0  # seconds
MOST_RETRIES: Final = 1_000
FAILED_TEXT: Final = "Sorry, this did not work. Please try again later."
JOB_PROCESS: Final = "tidegate.jobs.job_process"  # the module that a process of a pool runs
MAIN_IN_JOB: Final = "__tidegate_job__"  # the name of the bot's script where a job process imports it

Message = str | Mapping[str, Any] | None  # to the chat: a text, the fields of a message, or none
JobCallback = Callable[[JobRecord], Awaitable[Message]]


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a job is run, and what its chat hears if it fails for good (None: nothing)."""

    retries: int = 3
    pause: float = 60.0
    timeout: float = 300.0
    failed_text: str | None = FAILED_TEXT

    def __post_init__(self) -> None:
        if type(self.retries) is not int or not 0 <= self.retries <= MOST_RETRIES:
            raise BadInputError(f"retries is {self.retries!r}: give a whole number, 0 to {MOST_RETRIES:,}")
        for name, lowest in (("pause", 0.0), ("timeout", 0.001)):  # seconds
            seconds: object = getattr(self, name)
            if type(seconds) not in {int, float} or not lowest <= seconds <= LONGEST_TIMEOUT:  # type: ignore[operator]
                raise BadInputError(
                    f"{name} is {seconds!r}: give seconds, {lowest:g} to {LONGEST_TIMEOUT:,.0f} (a day)"
                )
        text: object = self.failed_text
        if text is not None and not (isinstance(text, str) and text.strip() and len(text) <= MAX_TEXT):
            raise BadInputError(
                f"failed_text is a text of 1 to {MAX_TEXT} characters, or None for no message"
            )


class FunctionPlace(msgspec.Struct, frozen=True):
    """Where a job process finds a function. `script`: the file that is run, if it is defined there."""

    module: str
    name: str
    script: str | None = None

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "FunctionPlace":
        """Raises BadInputError for a function that no other process could find."""
        name = getattr(function, "__qualname__", "")
        if not inspect.isfunction(function) or not name.isidentifier():
            raise BadInputError(
                "a job is a function at the top of a module, which other processes can import: not"
                f" {name or repr(function)}"
            )
        module = function.__module__
        if module != "__main__":
            return cls(module, name)
        main = sys.modules["__main__"]
        if main.__spec__ is not None:  # python -m package
            return cls(main.__spec__.name, name)
        if (file := getattr(main, "__file__", None)) is None:
            raise BadInputError("a job cannot be defined in a console: write it into a file")
        return cls(module, name, str(Path(file).absolute()))

    def load(self) -> "Job[..., Any]":
        """Import the module, or the script under another name, and return the job. Blocks."""
        if self.script is not None:
            names = _run_script(self.script)
        else:
            names = vars(importlib.import_module(self.module))
        found = names.get(self.name)
        if not isinstance(found, Job):
            raise BadInputError(f"there is no job {self.name} in {self.script or self.module} any more")
        return found


@functools.cache
def _run_script(script: str) -> dict[str, Any]:
    return runpy.run_path(script, run_name=MAIN_IN_JOB)


class Job(Generic[P, R]):
    """A function that runs outside of the bot's process: `await label.submit(order_id)`.

    Call it as the plain function that it is to run it here. `submit` takes the arguments of the function:
    texts, numbers, bytes, lists, dictionaries and files. Its result is of these, too.
    """

    def __init__(
        self, function: Callable[P, R], jobs: "Jobs", options: JobOptions, name: str | None = None
    ) -> None:
        self.place = FunctionPlace.of(function)
        self.function = function
        self.name = checked_name("the name of a job", self.place.name if name is None else name)
        self.options_of_job = options
        self.jobs = jobs
        self.done_callback: JobCallback | None = None
        self.failed_callback: JobCallback | None = None
        self._signature = inspect.signature(function)
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> "JobTicket":
        """Write the job down and return at once. It runs when a process is free, and is not lost.

        Raises BadInputError for arguments that cannot be stored or do not fit the function, and
        StoreAwayError if the database cannot be reached.
        """
        return await JobCall(self).submit(*args, **kwargs)

    def options(
        self,
        *,
        chat_id: ChatId | None = None,
        bot: object = None,
        key: str | None = None,
        delay: float = 0.0,
    ) -> "JobCall[P, R]":
        """Say more before `submit`: `await label.options(chat_id=1001, key="order-17").submit(17)`.

        `chat_id` gets what the function returns, a text or the fields of a message, and hears if it has
        failed for good. A job with the same `key` is submitted once. It begins after `delay` seconds.
        """
        return JobCall(self, chat_id=chat_id, bot=bot, key=key, delay=delay)

    def on_done(self, callback: JobCallback) -> JobCallback:
        """Call `async def callback(job)` in the bot's process when the function has returned.

        It makes the message to the chat of the job, if there is one: a text, fields, or None for none. After
        a crash it may be called again.
        """
        self.done_callback = _checked_callback(callback)
        return callback

    def on_failed(self, callback: JobCallback) -> JobCallback:
        """Likewise, when the job has failed for good. It replaces `failed_text`."""
        self.failed_callback = _checked_callback(callback)
        return callback

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise BadInputError unless the function could be called so, in another process."""
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BadInputError(f"job {self.name} cannot be called so: {error}") from None
        named = {f"argument {at}": value for at, value in enumerate(args, 1)} | kwargs
        for place, value in named.items():
            check_storable(place, f"the name of an argument of job {self.name}")
            check_storable(value, f"job {self.name}: {place}")
        size = len(pack_values([list(args), kwargs]))
        if size > MAX_ARGUMENT_BYTES:
            raise BadInputError(
                f"the arguments of job {self.name} have {size:,} bytes: give {MAX_ARGUMENT_BYTES:,} at most,"
                " such as a path or an id"
            )

    def __repr__(self) -> str:
        return f"Job({self.name!r})"


class JobCall(Generic[P, R]):
    """A job with the options of one call."""

    def __init__(
        self,
        job: Job[P, R],
        *,
        chat_id: ChatId | None = None,
        bot: object = None,
        key: str | None = None,
        delay: float = 0.0,
    ) -> None:
        self._job = job
        self._chat_id = chat_id
        self._bot = bot
        self._key = key
        self._delay = delay

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> "JobTicket":
        """As `Job.submit`."""
        job, options = self._job, self._job.options_of_job
        job.bind(args, kwargs)
        new = NewJob(
            name=job.name,
            args=args,
            kwargs=dict(kwargs),
            retries=options.retries,
            pause=options.pause,
            timeout=options.timeout,
            key=self._key,
            chat_id=self._chat_id,
            delay=self._delay,
        )
        return await job.jobs.submit(new, bot=self._bot)


def run_function(job: Job[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    """Run the function of a job in this process, and return a result that can be stored.

    An async function gets a loop of its own. Raises what the function raises, and BadInputError for a result
    that cannot be stored.
    """
    result = job.function(*args, **kwargs)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    check_storable(result, f"job {job.name}: its result")
    if len(pack_values(result)) > MAX_RESULT_BYTES:
        raise BadInputError(
            f"job {job.name}: its result is too large: write it to a file, and return its path"
        )
    return result


def checked_name(what: str, text: object) -> str:
    """Raise BadInputError unless it is a text that every database can keep and find again."""
    if not isinstance(text, str):
        raise BadInputError(f"{what} is a text: got {text!r}, of type {type(text).__name__}")
    check_storable(text, what)
    if not 0 < len(text) <= MAX_NAME_LENGTH or "\0" in text:
        raise BadInputError(f"{what} has 1 to {MAX_NAME_LENGTH} characters, none of which is a zero byte")
    return text


def check_no_job_process() -> None:
    """Raise BadInputError in a process of a pool: importing the bot's script there must not start the bot."""
    spec = sys.modules["__main__"].__spec__
    if spec is not None and spec.name == JOB_PROCESS:
        raise BadInputError(
            "a process that runs jobs has imported this script, which starts the bot: put its start under"
            " `if __name__ == '__main__':`"
        )


def _checked_callback(callback: JobCallback) -> JobCallback:
    if not inspect.iscoroutinefunction(callback):
        raise BadInputError(f"a callback of a job must be an `async def`: got {callback!r}")
    return callback
