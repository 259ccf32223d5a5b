"""What tests of the API share: a service, callers with each role, and things to ask for."""

from typing import Any, Self

import msgspec

from api_caller import Answer, ApiCaller
from memory_access import MemoryAccess
from memory_answers import MemoryAnswers
from memory_pending_actions import MemoryPendingActions
from tidegate import Tidegate
from tidegate.database.pending_actions import LetterChoice, NewPendingAction
from tidegate.flows import FlowBuilder, Session
from tidegate.flows.executor.executor import FlowRunner
from tidegate.flows.port import SessionKey
from tidegate.flows.registry import RunningFlow
from tidegate.history import AttemptRow, HistoryRow
from tidegate.jobs.record import NewJob
from tidegate.model import BotId, Dead, NotSent, Record, Settlement, State, TicketId
from tidegate.ops.access import AccessControl
from tidegate.ops.api.app import ServiceApp
from tidegate.stores.memory.flow_sessions import MemoryFlowSessions

BOT, OTHER_BOT = BotId(7_000_042), BotId(7_000_043)
CHAT = 1001
SECRET_TEXT = "meet me at the old mill"  # which a viewer must not see


class Service(msgspec.Struct, kw_only=True):
    app: ServiceApp
    gate: Tidegate
    access: AccessControl
    answers: MemoryAnswers
    access_store: MemoryAccess
    pending: MemoryPendingActions
    admin: ApiCaller
    operator: ApiCaller
    viewer: ApiCaller
    recorded: int = 0

    @classmethod
    async def of(
        cls,
        app: ServiceApp,
        gate: Tidegate,
        access: AccessControl,
        answers: MemoryAnswers,
        access_store: MemoryAccess,
        pending: MemoryPendingActions,
    ) -> Self:
        async def caller(role: str) -> ApiCaller:
            return ApiCaller(app, (await access.create_token(role, role)).secret)

        return cls(
            app=app,
            gate=gate,
            access=access,
            answers=answers,
            access_store=access_store,
            pending=pending,
            admin=await caller("admin"),
            operator=await caller("operator"),
            viewer=await caller("viewer"),
        )

    async def token(
        self, role: str = "operator", bot: BotId | None = None, expires_in: float | None = None
    ) -> str:
        return (await self.access.create_token(f"{role} of {bot}", role, bot, expires_in)).secret

    async def caller(self, role: str, bot: BotId | None = None) -> ApiCaller:
        return ApiCaller(self.app, await self.token(role, bot))

    async def put(self, chat_id: int = CHAT, bot: BotId = BOT, **fields: Any) -> TicketId:  # noqa: ANN401
        given = {"text": SECRET_TEXT} | fields
        return (await self.gate.send(bot=bot, chat_id=chat_id, **given)).id

    async def put_letter(
        self, chat_id: int = CHAT + 1, bot: BotId = BOT, reason: str = "blocked"
    ) -> TicketId:
        """Put a message and let it die."""
        ticket = await self.put(chat_id, bot, priority="high", urgent=True)
        await self.gate.outbox.resume(bot)  # a broadcast may have paused it
        await self.gate.outbox.start_sending()
        dead = Dead(reason, f"Telegram quotes: {SECRET_TEXT}")
        claims = await self.gate.outbox.claim(100)
        await self.gate.outbox.settle(
            [Settlement(claim, dead if claim.message.id == ticket else NotSent("")) for claim in claims]
        )
        return ticket

    async def put_pending(self) -> int:
        """Ask for a drop that can still be undone, and return its number."""
        now = self.gate.clock.now()
        new = NewPendingAction(
            action="drop",
            choice=LetterChoice(ended_by=now, bot=BOT, reason="blocked"),
            selected=1,
            principal="operator",
            token_id=None,
            asked_at=now,
            due_at=now + 60,
        )
        return (await self.pending.add(new)).id

    async def put_job(self, bot: BotId = BOT) -> int:
        new = NewJob(name="label", args=(SECRET_TEXT,), chat_id=CHAT)
        return (await self.gate.jobs.submit(new, bot=bot)).id

    async def put_reminder(self, bot: BotId = BOT) -> int:
        added = await self.gate.reminders.add(
            CHAT, bot=bot, text=SECRET_TEXT, at="09:00", every="day", zone="Europe/Berlin"
        )
        return added.id

    async def put_broadcast(self, bot: BotId = BOT) -> str:
        """Begin a broadcast, which waits as its bot is paused, and return its name."""
        await self.gate.outbox.pause(bot)
        self.recorded += 1
        name = f"sale-{self.recorded}"
        await self.gate.start_broadcast(name, [1, 2, 3], SECRET_TEXT, bot=bot)
        return name

    async def run_flow(self, bot: BotId = BOT, name: str = "order", people: int = 2) -> str:
        """Let a flow run, with people in its first state, and return its name."""
        declared = FlowBuilder(name)
        declared.command("/start", to="choosing")
        declared.state("choosing", say=SECRET_TEXT).button("Buy", to="bought")
        declared.final("bought", say="Thanks!")
        flow, sessions = declared.build(), MemoryFlowSessions(name)
        for user in range(1, people + 1):
            session = Session(flow=name, state="choosing", visit=1, data={"note": SECRET_TEXT})
            await sessions.commit(SessionKey(bot, user, user), session, expected=0)
        stats = FlowRunner(flow, self.gate).stats
        self.gate.core.flows.add(RunningFlow(flow, bot, sessions, stats, self.gate.clock))
        return name

    async def put_history(self, bot: BotId = BOT, **fields: Any) -> int:  # noqa: ANN401
        """Record a message, and return Telegram's id of it."""
        self.recorded += 1
        row = HistoryRow(
            key=str(self.recorded),
            bot=bot,
            direction="out",
            chat_id=str(CHAT),
            telegram_message_id=self.recorded,
            reply_to_message_id=None,
            user_id=None,
            kind="sendMessage",
            is_change=False,
            text=SECRET_TEXT,
            state="dead",
            reason="blocked",
            description=f"Telegram quotes: {SECRET_TEXT}",
            ticket=None,
            priority="normal",
            attempts=1,
            created_at=self.gate.clock.now(),
            ended_at=None,
        )
        await (await self.gate.history.opened()).write([msgspec.structs.replace(row, **fields)])
        return self.recorded

    async def put_attempt(self, ticket: str, bot: BotId = BOT, **fields: Any) -> None:  # noqa: ANN401
        """Record an attempt that did not deliver a message."""
        self.recorded += 1
        row = AttemptRow(
            key=f"attempt-{self.recorded}",
            ticket=ticket,
            bot=bot,
            chat_id=str(CHAT),
            number=1,
            at=self.gate.clock.now(),
            seconds=0.25,
            outcome="dead",
            reason="blocked",
            description=f"Telegram quotes: {SECRET_TEXT}",
        )
        await (await self.gate.history.opened()).write([msgspec.structs.replace(row, **fields)])

    async def find(self, ticket: str) -> Record:
        record = await self.gate.outbox.find(TicketId(ticket))
        assert record is not None
        return record

    async def state_of(self, ticket: str) -> State:
        return (await self.find(ticket)).state

    async def audited(self) -> list[str]:
        """The actions in the audit log, the oldest first."""
        return [entry.action for entry in reversed(await self.access.audit(limit=1000))]


def problem(answer: Answer) -> tuple[int, str, str]:
    """The status, kind and detail of a problem, which has the form of RFC 9457."""
    assert answer.headers["content-type"] == "application/problem+json"
    content = answer.json
    assert content["status"] == answer.status
    assert content["title"]
    return answer.status, content["type"].removeprefix("urn:tidegate:problem:"), content["detail"]
