"""What can be a job, and what it can be given."""

import functools
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from memory_jobs import MemoryJobs
from tidegate import Tidegate
from tidegate.errors import BadInputError, ClosedError
from tidegate.inbound.signed_hooks import HookEvent
from tidegate.jobs.job import MAX_ARGUMENT_BYTES, FunctionPlace, Job, JobOptions, run_function
from tidegate.jobs.jobs import Jobs, submits_events
from tidegate.jobs.record import JobRecord
from tidegate.jobs.values import pack_values
from tidegate.model import File
from tidegate.outbox.effect_keys import effect_keys_for
from tidegate.sim.virtual_time import VirtualClock
from unit.jobs.office_jobs import ScriptedExecutor, label


class Shop:
    def method(self) -> None: ...

    @classmethod
    def of_class(cls) -> None: ...

    @staticmethod
    def static() -> None: ...

    def __call__(self) -> None: ...


def order(number: int, /, *lines: str, note: str = "", **more: object) -> str:
    return f"{number} {lines} {note} {more}"


async def slow_order(number: int) -> str:
    return f"order {number}"


def odd_result(kind: str) -> object:
    return {"set": {1}, "large": b"x" * 60_000_000, "fine": {"document": File(content=b"x")}}[kind]


def make(function: Any = order, *, name: Any = None, **options: Any) -> Job[..., Any]:  # noqa: ANN401
    jobs: Any = None
    return Job(function, jobs, JobOptions(**options), name)


def test_a_job_knows_where_another_process_finds_it() -> None:
    assert make(label).place == FunctionPlace("unit.jobs.office_jobs", "label")
    assert make(label)(7) == "label 7"  # as the plain function that it is


def nested() -> Any:  # noqa: ANN401
    def inside() -> None: ...

    return inside


@pytest.mark.parametrize(
    "function",
    [
        lambda: None,
        nested(),
        Shop.method,
        Shop().method,
        Shop.of_class,
        Shop.static,
        Shop,
        Shop(),
        functools.partial(order, 1),
        len,
        math.floor,
        "".join,
        "order",
        None,
        7,
    ],
    ids=lambda given: getattr(given, "__qualname__", type(given).__name__),
)
def test_what_no_other_process_could_import_is_no_job(function: object) -> None:
    """A function of C, such as `len`, was taken, and could not be found when it was to run."""
    with pytest.raises(BadInputError, match="a job is a function at the top of a module"):
        make(function)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retries": -1}, "retries is -1"),
        ({"retries": 1001}, "retries is 1001"),
        ({"retries": 1.5}, "retries is 1.5"),
        ({"retries": True}, "retries is True"),
        ({"retries": "3"}, "retries is '3'"),
        ({"pause": -0.1}, "pause is -0.1"),
        ({"pause": math.nan}, "pause is nan"),
        ({"pause": "1m"}, "pause is '1m'"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": 86_401}, "timeout is 86401"),
        ({"timeout": math.inf}, "timeout is inf"),
        ({"timeout": None}, "timeout is None"),
        ({"failed_text": ""}, "failed_text is a text"),
        ({"failed_text": " \n"}, "failed_text is a text"),
        ({"failed_text": "x" * 5_000}, "failed_text is a text"),
        ({"failed_text": 7}, "failed_text is a text"),
        ({"name": ""}, "the name of a job has 1 to 255 characters"),
        ({"name": "x" * 256}, "the name of a job has 1 to 255 characters"),
        ({"name": "a\0b"}, "none of which is a zero byte"),
        ({"name": "\ud800"}, "half a character"),
        ({"name": 7}, "the name of a job is a text: got 7"),
    ],
)
def test_bad_options_are_refused_where_they_are_given(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInputError, match=text):
        make(**options)


@pytest.mark.parametrize("callback", [label, None, "text", lambda _: None])
def test_a_callback_is_async(callback: Any) -> None:  # noqa: ANN401
    for register in (make().on_done, make().on_failed):
        with pytest.raises(BadInputError, match="must be an `async def`"):
            register(callback)


async def test_a_name_is_taken_once_and_the_same_function_may_be_declared_again(clock: VirtualClock) -> None:
    gate = Tidegate("memory://", clock=clock)
    gate.job(label)
    again = gate.job(retries=7)(label)
    other = gate.job(name="label 2")(order)
    assert gate.jobs.declared == {"label": again, "label 2": other}
    assert gate.jobs.named("label") is again

    with pytest.raises(BadInputError, match="there is a job label already"):
        gate.job(name="label")(order)
    with pytest.raises(
        BadInputError, match="there is no job 'video' in this process; declared: label, label 2"
    ):
        gate.jobs.named("video")


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "job order cannot be called so: missing a required"),
        ((1,), {"number": 2}, None),  # into **more
        ((object(),), {}, "job order: argument 1 is of type object"),
        ((1, "a", {"b": [{1}]}), {}, r"job order: argument 3\['b'\]\[0\] is of type set"),
        ((1,), {"note": math.nan}, "job order: note is nan"),
        ((1,), {"\ud800": 1}, "the name of an argument of job order holds half a character"),
        ((b"x" * MAX_ARGUMENT_BYTES,), {}, "the arguments of job order have 1,048,5.. bytes: give 1,048,576"),
        ((File(content=b"x" * MAX_ARGUMENT_BYTES),), {}, "the arguments of job order have"),
    ],
)
def test_arguments_that_do_not_fit_or_cannot_be_stored_are_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], text: str | None
) -> None:
    if text is None:
        make().bind(args, kwargs)
        return
    with pytest.raises(BadInputError, match=text):
        make().bind(args, kwargs)


def test_arguments_may_be_as_large_as_the_limit_says() -> None:
    room = MAX_ARGUMENT_BYTES - len(pack_values([[b"x" * 70_000], {}])) + 70_000
    make().bind((b"x" * room,), {})
    with pytest.raises(BadInputError, match="bytes: give"):
        make().bind((b"x" * (room + 1),), {})


def test_an_async_function_runs_in_a_loop_of_its_own() -> None:
    assert run_function(make(slow_order), (7,), {}) == "order 7"


@pytest.mark.parametrize(("kind", "text"), [("set", "is of type set"), ("large", "is too large")])
def test_a_result_that_cannot_be_stored_is_an_error_that_says_so(kind: str, text: str) -> None:
    with pytest.raises(BadInputError, match=f"job odd_result: its result {text}"):
        run_function(make(odd_result), (kind,), {})
    assert run_function(make(odd_result), ("fine",), {}) == {"document": File(content=b"x")}


@pytest.fixture
async def gate(clock: VirtualClock) -> AsyncIterator[Tidegate]:
    made = Tidegate("memory://", clock=clock)
    made.add_bot("42:token")
    store = MemoryJobs(clock)

    async def exist() -> bool:
        return True

    made.core.jobs = Jobs(made.core, lambda: store, exist, lambda _: ScriptedExecutor(clock))
    async with made:
        yield made


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delay": -1}, "delay is -1: give seconds"),
        ({"delay": math.nan}, "delay is nan"),
        ({"delay": "1h"}, "delay is '1h'"),
        ({"delay": 10**10}, "a year at most"),
        ({"key": ""}, "the key of a job has 1 to 255 characters"),
        ({"key": "x" * 256}, "the key of a job has 1 to 255 characters"),
        ({"key": "a\0"}, "none of which is a zero byte"),
        ({"key": 17}, "the key of a job is a text: got 17, of type int"),
        ({"chat_id": "nobody"}, "chat_id"),
        ({"chat_id": 1, "bot": 99}, "99"),
    ],
)
async def test_bad_options_of_a_call_are_refused_and_store_nothing(
    gate: Tidegate, options: dict[str, Any], text: str
) -> None:
    """A key that was a number, or a delay that was a text, raised a TypeError of Python's."""
    with pytest.raises(BadInputError, match=text):
        await gate.job(order).options(**options).submit(1)
    assert await gate.jobs.list() == []


async def test_a_ticket_tells_what_became_of_its_job(gate: Tidegate, clock: VirtualClock) -> None:
    job = gate.job(retries=1, pause=2.0, timeout=3.0)(order)
    ticket = await job.options(chat_id=1001, key="order-1", delay=5.0).submit(1, "a", note="b", more=[1])

    status = await ticket.status()
    assert status is not None
    assert (status.args, status.kwargs) == ((1, "a"), {"note": "b", "more": [1]})
    assert (status.retries, status.pause, status.timeout) == (1, 2.0, 3.0)
    assert (status.chat_id, status.bot, status.key) == (1001, 42, "order-1")
    assert status.due_at == clock.now() + 5.0
    assert await gate.jobs.queue_length() == await gate.jobs.queue_length("order") == 1
    assert await gate.jobs.queue_length("label") == 0

    same = await job.options(key="order-1").submit(2)
    assert (same.id, same.is_new, ticket.is_new) == (ticket.id, False, True)

    with pytest.raises(TimeoutError):
        await ticket.ended(timeout=1.0)
    assert await ticket.cancel()
    assert not await ticket.cancel()
    assert (await ticket.ended()).state == "cancelled"
    with pytest.raises(BadInputError, match="there is no job 999"):
        await gate.jobs.ended(999)


async def test_a_handler_that_runs_again_submits_its_jobs_once(gate: Tidegate) -> None:
    job = gate.job(order)

    async def handle() -> list[int]:
        with effect_keys_for("update:7"):
            tickets = [await job.submit(1, "a"), await job.submit(1, "a"), await job.submit(2)]
            return [ticket.id for ticket in tickets]

    first = await handle()

    assert len(set(first)) == 3
    assert await handle() == first


async def test_a_gate_that_is_closed_takes_no_job(clock: VirtualClock) -> None:
    with pytest.raises(ClosedError):
        await Tidegate("memory://", clock=clock).job(order).submit(1)


def event(body: bytes = b'{"id": 7}', event_id: str = "evt_1") -> HookEvent:
    return HookEvent(
        hook="payments", id=event_id, timestamp=1.5, received_at=2.5, headers={"a": "b"}, body=body
    )


async def submitted(gate: Tidegate, *events: HookEvent) -> list[JobRecord]:
    submit = submits_events(gate.job(label))
    for one in events:
        await submit(one)
    return list(reversed(await gate.jobs.list()))


async def test_an_event_becomes_a_job_once(gate: Tidegate) -> None:
    [job] = await submitted(gate, event(), event())
    assert job.args == (
        {
            "hook": "payments",
            "id": "evt_1",
            "timestamp": 1.5,
            "received_at": 2.5,
            "headers": {"a": "b"},
            "body": b'{"id": 7}',
            "json": {"id": 7},
        },
    )


@pytest.mark.parametrize(
    "body",
    [b"no json", b'{"id": 99999999999999999999}', b"[" * 60 + b"]" * 60, b'"' + b"x" * 999_998 + b'"'],
    ids=["no JSON", "a large number", "deep", "as large as a hook takes"],
)
async def test_an_event_whose_json_cannot_be_stored_comes_with_its_body(gate: Tidegate, body: bytes) -> None:
    """The job was refused, and the event was parked."""
    [job] = await submitted(gate, event(body))
    assert (job.args[0]["body"], job.args[0]["json"]) == (body, None)


async def test_two_events_whose_long_ids_begin_alike_are_two_jobs(gate: Tidegate) -> None:
    """Their keys were cut to the same text: the second event was lost."""
    one, two = event(event_id="x" * 254 + "1"), event(event_id="x" * 254 + "2")
    jobs = await submitted(gate, one, two, one)
    assert [job.args[0]["id"] for job in jobs] == [one.id, two.id]
