"""One request to the API: who makes it, which bots it may touch, and what it has changed."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from fastapi import Depends
from starlette.requests import Request

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.inbound.webhook_request import BodyReader, WebhookRequest
from tidegate.model import BotId
from tidegate.ops.access import AccessControl, Principal, Role
from tidegate.ops.api.bodies import StreamLimit, header, parts_of
from tidegate.ops.api.idempotency import AnswerStore
from tidegate.ops.api.problems import FORBIDDEN, NOT_FOUND, ProblemError
from tidegate.ops.dashboard.activity import Activity
from tidegate.ops.letter_actions import PendingActions
from tidegate.ops.metrics import Metrics

if TYPE_CHECKING:
    from tidegate.gate import Tidegate

WHICH_BOT: Final = "give a number of GET /api/v1/bots as bot; POST /api/v1/bots adds one"
LOOK_EVERY: Final = 5.0  # seconds between two looks for bots that only other processes know
CONTEXT, PRINCIPAL, CALL = (
    "tidegate.context",
    "tidegate.principal",
    "tidegate.call",
)  # in the scope of a request


class BotDirectory:
    """Finds bots, also those that are not registered here: another process may deliver for them."""

    def __init__(self, gate: "Tidegate") -> None:
        self._gate = gate
        self._looked_at = float("-inf")

    async def find(self, bot: int | None) -> BotId:
        """Return the bot that is meant, the only one if None. Raises BadInputError if it is not known."""
        registry = self._gate.core.registry
        try:
            return registry.id_of(bot)
        except BadInputError:
            await self._look()
        try:
            return registry.id_of(bot)
        except BadInputError:
            which = "which bot is not clear" if bot is None else f"bot {bot} is not known"
            raise BadInputError(f"{which}: {WHICH_BOT}") from None

    async def _look(self) -> None:
        now = self._gate.clock.monotonic()
        if now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = now
        await self._gate.core.registry.look()  # another process may have registered it just now
        health = await self._gate.core.store.sender_health()
        self._gate.core.registry.know_elsewhere(() if health is None else health.bots)


def scoped_bot(principal: Principal, bot: int | None) -> int | None:
    """Return the bot that a request is about: the one it names, or the only one of its token.

    Raises ProblemError for a bot that the token may not touch. Whether that bot exists is not told.
    """
    if principal.bot is None:
        return bot
    if bot is not None and bot != principal.bot:
        raise ProblemError(FORBIDDEN, f"this token is for bot {principal.bot} alone")
    return principal.bot


class ApiContext(NamedTuple):
    """The parts that all requests to one API share."""

    gate: "Tidegate"
    access: AccessControl
    bots: BotDirectory
    bodies: BodyReader
    answers: AnswerStore
    metrics: Metrics
    streams: StreamLimit
    activity: Activity
    pending: PendingActions


class ApiCall:
    """The request as functions of routes see it."""

    def __init__(self, context: ApiContext, principal: Principal) -> None:
        self.gate = context.gate
        self.access = context.access
        self.principal = principal
        self.metrics = context.metrics
        self.activity = context.activity
        self.pending = context.pending
        self._bots = context.bots
        self.request: WebhookRequest | None = None  # for functions that read the body as it arrives
        self.audited_bot: BotId | None = None
        self.audited_target: object = None
        self.audited_detail: str | None = None

    @property
    def clock(self) -> Clock:
        return self.gate.clock

    @property
    def content_type(self) -> str:
        return "" if self.request is None else header(self.request, "content-type")

    def parts(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Only for a route that declares what it `takes`."""
        if self.request is None:
            raise TypeError("this route does not declare what it takes")
        return parts_of(self.request, self.clock)

    @property
    def sees_texts(self) -> bool:
        """True if the caller may read the texts of messages."""
        return self.principal.role.includes(Role.OPERATOR)

    @property
    def records_history(self) -> bool:
        """False with TIDEGATE_HISTORY=off: what is not in the history may have happened nevertheless."""
        return self.gate.settings.tidegate_history != 0

    def bot_filter(self, bot: int | None) -> BotId | None:
        """Return the bot whose things are listed; None: of all. Raises ProblemError for a foreign one."""
        found = scoped_bot(self.principal, bot)
        return None if found is None else BotId(found)

    async def bot_for(self, bot: int | None) -> BotId:
        """Return the bot that something new is for. Raises ProblemError, and BadInputError if unknown."""
        return await self._bots.find(scoped_bot(self.principal, bot))

    def check_own(self, bot: BotId | None, what: str) -> None:
        """Raise ProblemError, as if it did not exist, for a thing of a bot that this token may not see."""
        if self.principal.bot not in {None, bot}:
            raise self.not_found(what)

    def check_owners(self, bots: Sequence[BotId], what: str) -> None:
        """Likewise for a thing that each of these bots has a part in; one that no bot has is not known."""
        if not bots:
            raise self.not_found(what)
        for bot in bots:
            self.check_own(bot, what)

    @staticmethod
    def not_found(what: str) -> ProblemError:
        return ProblemError(NOT_FOUND, f"{what} is not known here")

    def changed(self, *, bot: BotId | None = None, target: object = None, detail: str | None = None) -> None:
        """Say what the request has changed, for the audit log. No text of a message belongs into it."""
        self.audited_bot, self.audited_target, self.audited_detail = bot, target, detail


async def _call_of(request: Request) -> ApiCall:
    call: ApiCall = request.scope[CALL]
    return call


Call = Annotated[ApiCall, Depends(_call_of)]
