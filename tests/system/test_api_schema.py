"""The API keeps to its own OpenAPI document, whatever is asked: no 5xx, no undocumented status."""

import asyncio
from collections.abc import Iterator, MutableMapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from memory_access import MemoryAccess
from memory_answers import MemoryAnswers
from memory_audiences import MemoryAudiences
from memory_history import MemoryHistory
from memory_jobs import MemoryJobs
from memory_pending_actions import MemoryPendingActions
from tidegate import Tidegate
from tidegate.broadcast.stored_audience import StoredAudiences
from tidegate.clock import Clock
from tidegate.history import History
from tidegate.jobs.jobs import Jobs
from tidegate.jobs.record import NewJob
from tidegate.model import BotId
from tidegate.ops.access import AccessControl
from tidegate.ops.api.app import make_api
from tidegate.ops.api.document import openapi_document
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from unit.jobs.office_jobs import ScriptedExecutor

if TYPE_CHECKING:
    from schemathesis.engine.recorder import ScenarioRecorder

BOT = BotId(42)
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
)
access_store = MemoryAccess(Clock())


def new_token() -> str:
    async def create() -> str:
        return (await AccessControl(lambda: access_store, Clock()).create_token("test", "admin")).secret

    return asyncio.run(create())


class FilledService:
    """The API on a gate in memory, which has something of everything as soon as it has started."""

    def __init__(self) -> None:
        clock = Clock()
        wire = TelegramWire(SimulatedTelegram(clock), clock)
        self._gate = gate = Tidegate("memory://", clock=clock, wire=wire)
        jobs = MemoryJobs(gate.clock)
        gate.core.jobs = Jobs(gate.core, lambda: jobs, _true, lambda _: ScriptedExecutor(gate.clock))
        gate.core.history = History(gate.core, MemoryHistory, _true)
        audiences = MemoryAudiences(clock)
        gate.core.audiences = StoredAudiences(lambda: audiences, _true, clock)
        access = AccessControl(lambda: access_store, gate.clock)
        self._app = make_api(
            gate, access, webhook=gate.asgi(), answers=MemoryAnswers(), pending=MemoryPendingActions()
        )

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401
        async def send_on(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "lifespan.startup.complete":
                await self._fill()
            await send(message)

        await self._app(scope, receive, send_on if scope["type"] == "lifespan" else send)

    async def _fill(self) -> None:
        gate = self._gate
        gate.add_bot(f"{BOT}:token")  # a request may have removed it
        await gate.outbox.pause(BOT)  # nothing is sent
        await gate.send_many(({"chat_id": chat, "text": "Hi"} for chat in range(1, 50)), bot=BOT)
        for _ in range(3):
            await gate.reminders.add(1, bot=BOT, text="Hi", at="09:00", every="day", zone="UTC")
            await gate.jobs.submit(NewJob(name="label", args=("x",), chat_id=1), bot=BOT)


async def _true() -> bool:
    return True


def run(examples: int, token: str, *, coverage: bool = True) -> tuple[int, list[str]]:
    """Return how many requests were made, and what was wrong with the answers."""
    # Slow to import, which all workers of a run would do.
    import schemathesis  # noqa: PLC0415
    from schemathesis.config import SchemathesisConfig  # noqa: PLC0415
    from schemathesis.engine import events, from_schema  # noqa: PLC0415
    from schemathesis.python.asgi import shutdown_lifespans  # noqa: PLC0415

    @schemathesis.serializer("application/x-ndjson", "text/csv")
    def as_lines(context: schemathesis.SerializationContext, value: object) -> bytes:
        del context
        return value.encode("utf-8", "replace") if isinstance(value, str) else msgspec.json.encode(value)

    config = SchemathesisConfig.from_dict(
        {
            "seed": 1,
            "headers": {"Authorization": f"Bearer {token}"},
            "continue-on-failure": True,
            "checks": {"enabled": False} | {name: {"enabled": True} for name in CHECKS},
            "phases": {"coverage": {"enabled": coverage}, "stateful": {"enabled": False}},
            "generation": {"max-examples": examples, "database": "none", "no-shrink": True},
        }
    )
    schema = schemathesis.openapi.from_dict(deepcopy(openapi_document()), config=config)
    schema.app = FilledService()
    made, wrong = 0, []
    try:
        for event in from_schema(schema).execute():
            if isinstance(event, events.ScenarioFinished):
                made += len(event.recorder.cases)
                wrong += list(failures(event.recorder))
            elif isinstance(event, events.NonFatalError | events.FatalError):
                wrong.append(str(event))
    finally:
        shutdown_lifespans()  # otherwise the gate would deliver until this process exits
    return made, wrong


def failures(recorder: "ScenarioRecorder") -> Iterator[str]:
    for case, checks in recorder.checks.items():
        for check in checks:
            # 503 is an answer of /readyz: a request before may have removed the bot.
            is_answer = recorder.label == "GET /readyz" and check.name == "not_a_server_error"
            if check.failure_info is not None and not is_answer:
                yield f"{recorder.cases[case].value!r}: {check}"


def test_every_operation_answers_as_its_document_says() -> None:
    made, wrong = run(3, new_token())
    assert wrong == []
    assert made > 1_000


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_many_more_requests_are_answered_so() -> None:
    made, wrong = run(100, new_token())
    assert wrong == []
    assert made > 5_000
