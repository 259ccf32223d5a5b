"""Routes of dead letters: count, list, show, replay and drop them, one by one or in bulk."""

from typing import Annotated, Final, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from tidegate.database.pending_actions import LetterChoice, PendingAction
from tidegate.model import Record, State, TicketId
from tidegate.ops.access import Role
from tidegate.ops.api.api_call import ApiCall, Call
from tidegate.ops.api.messages import MessagePage, MessageView, find_record, message_view
from tidegate.ops.api.pagination import Cursor, Limit, decode_cursor, encode_cursor
from tidegate.ops.api.parameters import (
    EXAMPLE_ID,
    EXAMPLE_TIME,
    BotField,
    BotFilter,
    ChatField,
    ChatFilter,
    JsonBody,
    MessagePath,
    ReasonFilter,
    RowPath,
    Seconds,
    chat_of,
)
from tidegate.ops.api.problems import BAD_INPUT, CONFLICT, ProblemError
from tidegate.ops.api.routes import RouteAccess, RouteTable, Scope
from tidegate.ops.letter_actions import change_letters, change_of, count_letters, described
from tidegate.outbox.admission import check_chat

ROUTES = RouteTable("dead letters")
LETTERS: Final = frozenset({State.DEAD, State.PARKED})
MOST_AT_ONCE: Final = 10_000  # in one request
MOST_IDS: Final = 1_000
LONGEST_UNDO: Final = 60.0  # seconds

LetterState = Literal["dead", "parked"]


class LetterSelection(JsonBody):
    """Dead letters, by their ids or by a filter. Parked ones are meant only by id or by `state`: they may
    have been delivered already.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"reason": "attempts", "older_than": 3600, "dry_run": True}},
    )

    ids: list[str] | None = Field(default=None, max_length=MOST_IDS, examples=[[EXAMPLE_ID]])
    bot: BotField | None = None
    chat_id: ChatField | None = None
    reason: str | None = Field(default=None, max_length=100)
    state: LetterState | None = None
    older_than: float | None = Field(
        default=None, ge=0, le=1e9, description="Only if they ended so many seconds ago."
    )
    ended_by: float | None = Field(
        default=None,
        ge=0,
        le=1e11,
        description="Only if they ended then or before, such as what a dry run answers: no others are meant.",
    )
    everything: bool = Field(default=False, description="All dead letters, if there is no filter.")
    limit: int | None = Field(
        default=None,
        ge=1,
        le=MOST_AT_ONCE,
        description=f"Do no more: {MOST_AT_ONCE:,} if not given, and no bound with `undo_for`.",
    )
    undo_for: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_UNDO,
        description="Seconds in which it can be undone: nothing is changed before they are over.",
    )
    dry_run: bool = Field(default=False, description="Count them, and change nothing.")


class LettersDone(BaseModel):
    """`selected` are those that were found, `done` those that were changed: others were faster with the rest,
    or they cannot be decoded. `more`: there are further ones. With `undo_for`, `done` is 0, and `undo` the
    address to which a POST takes it back until `due_at`.
    """

    selected: int
    done: int
    more: bool
    dry_run: bool
    ended_by: Seconds | None = Field(default=None, description="Of a count: those that ended by then.")
    undo: str | None = None
    due_at: Seconds | None = None


class LetterDone(BaseModel):
    done: bool


class Undone(BaseModel):
    undone: bool


class LetterGroupView(BaseModel):
    """The dead letters of a bot that ended in one state for one reason."""

    bot: BotField
    state: State
    reason: str | None = Field(examples=["blocked"])
    count: int
    first_at: Seconds
    last_at: Seconds
    latest: str = Field(description="The id of the one that ended last.", examples=[EXAMPLE_ID])


class LetterGroups(BaseModel):
    """Groups of dead letters, the largest first."""

    items: list[LetterGroupView]


class PendingView(BaseModel):
    """A replay or drop that was asked for with `undo_for`."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": 17,
                "action": "drop",
                "bot": 42,
                "chat_id": None,
                "reason": "blocked",
                "state": "dead",
                "by_ids": False,
                "selected": 1204,
                "done": 0,
                "asked_by": "ops",
                "asked_at": EXAMPLE_TIME,
                "due_at": EXAMPLE_TIME + 15,
                "undo": "/api/v1/dead-letters/pending/17/undo",
            }
        }
    )

    id: int
    action: Literal["replay", "drop"]
    bot: BotField | None = Field(description="null: of all bots.")
    chat_id: ChatField | None
    reason: str | None
    state: LetterState | None = Field(description="null: those that were named by their ids.")
    by_ids: bool
    selected: int
    done: int
    asked_by: str
    asked_at: Seconds
    due_at: Seconds
    undo: str | None = Field(description="A POST there takes it back; null: it has begun.")


class PendingList(BaseModel):
    """Actions that were asked for and are not done, the first to be done first."""

    items: list[PendingView]


@ROUTES.get("/api/v1/dead-letters", RouteAccess(Role.VIEWER, Scope.FILTER), summary="List dead letters")
async def list_letters(
    call: Call,
    *,
    bot: BotFilter = None,
    chat_id: ChatFilter = None,
    reason: ReasonFilter = None,
    state: Annotated[LetterState | None, Query(description="parked: the outcome is unknown.")] = None,
    older_than: Annotated[
        float | None,
        Query(ge=0, le=1e9, description="Only if they ended so many seconds ago.", examples=[3600]),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> MessagePage:
    """Dead and parked messages, the oldest first."""
    page = await call.gate.outbox.record_page(
        bot=call.bot_filter(bot),
        chat_id=chat_of(chat_id),
        states=LETTERS if state is None else frozenset({State(state)}),
        reason=reason,
        cursor=decode_cursor("letters", cursor, str) or "",
        limit=limit,
    )
    ended_by = call.clock.now() - (older_than or 0.0)
    shown = [one for one in page.records if (one.settled_at or ended_by) <= ended_by]
    more = page.cursor if len(shown) == len(page.records) else ""  # those that follow ended later
    items = [message_view(call, one, whole=False) for one in shown]
    return MessagePage(items=items, next_cursor=encode_cursor("letters", more or None))


@ROUTES.get(
    "/api/v1/dead-letters/reasons",
    RouteAccess(Role.VIEWER, Scope.FILTER),
    summary="Count dead letters by reason",
)
async def list_groups(call: Call, *, bot: BotFilter = None) -> LetterGroups:
    """How many died of what, of each bot: since when, and which one last."""
    groups = await call.gate.outbox.letters_by_reason(call.bot_filter(bot))
    names = LetterGroupView.model_fields
    return LetterGroups(
        items=[LetterGroupView(**{name: getattr(one, name) for name in names}) for one in groups]
    )


@ROUTES.get(
    "/api/v1/dead-letters/pending",
    RouteAccess(Role.VIEWER, Scope.FILTER),
    summary="List what can be undone",
)
async def list_pending(call: Call, *, bot: BotFilter = None) -> PendingList:
    """Replays and drops that were asked for with `undo_for` and are not done."""
    found = await call.pending.store.list(call.bot_filter(bot))
    return PendingList(items=[_pending_view(one) for one in found])


@ROUTES.change(
    "POST",
    "/api/v1/dead-letters/pending/{pending_id}/undo",
    RouteAccess(Role.OPERATOR, Scope.OBJECT),
    "dead_letters.undo",
    summary="Undo a replay or a drop",
)
async def undo_letters(call: Call, pending_id: RowPath) -> Undone:
    """Take back what was asked for with `undo_for`. While it is being done that is a conflict (409); later it
    is not found.
    """
    what = f"pending change {pending_id}"
    found = await call.pending.store.find(pending_id)
    if found is None:
        raise call.not_found(what)
    call.check_own(found.choice.bot, what)
    if not await call.pending.store.undo(pending_id):
        raise ProblemError(CONFLICT, f"{what} has begun: it cannot be undone any more")
    about = f"{found.action} of {found.selected} {described(found.choice)}"
    call.changed(bot=found.choice.bot, target=f"pending {pending_id}", detail=about)
    return Undone(undone=True)


@ROUTES.get(
    "/api/v1/dead-letters/{message_id}", RouteAccess(Role.VIEWER, Scope.OBJECT), summary="Show a dead letter"
)
async def show_letter(call: Call, message_id: MessagePath) -> MessageView:
    """Why a message died, and what Telegram said."""
    return message_view(call, await _find_letter(call, message_id))


@ROUTES.change(
    "POST",
    "/api/v1/dead-letters/{message_id}/replay",
    RouteAccess(Role.OPERATOR, Scope.OBJECT),
    "dead_letters.replay",
    summary="Replay a dead letter",
)
async def replay_letter(call: Call, message_id: MessagePath) -> LetterDone:
    """Queue a dead letter anew, as if it were put now."""
    record = await _find_letter(call, message_id)
    if await call.gate.outbox.replay([record.message.id]) != 1:
        raise ProblemError(CONFLICT, f"message {message_id} cannot be replayed: {_why_not(record)}")
    call.changed(bot=record.message.bot, target=message_id)
    return LetterDone(done=True)


@ROUTES.change(
    "DELETE",
    "/api/v1/dead-letters/{message_id}",
    RouteAccess(Role.OPERATOR, Scope.OBJECT),
    "dead_letters.drop",
    summary="Drop a dead letter",
)
async def drop_letter(call: Call, message_id: MessagePath) -> LetterDone:
    """Forget a dead letter for good."""
    record = await _find_letter(call, message_id)
    if await call.gate.outbox.drop([record.message.id]) != 1:
        raise ProblemError(CONFLICT, f"message {message_id} is not a dead letter any more")
    call.changed(bot=record.message.bot, target=message_id)
    return LetterDone(done=True)


@ROUTES.change(
    "POST",
    "/api/v1/dead-letters/replay",
    RouteAccess(Role.OPERATOR, Scope.BODY),
    "dead_letters.replay",
    summary="Replay dead letters in bulk",
)
async def replay_letters(call: Call, selection: LetterSelection) -> LettersDone:
    """Queue dead letters anew: by ids, by a filter, or all. Try it with `dry_run`, or give `undo_for`."""
    return await _work_off(call, selection, "replay")


@ROUTES.change(
    "POST",
    "/api/v1/dead-letters/drop",
    RouteAccess(Role.OPERATOR, Scope.BODY),
    "dead_letters.drop",
    summary="Drop dead letters in bulk",
)
async def drop_letters(call: Call, selection: LetterSelection) -> LettersDone:
    """Forget dead letters for good: by ids, a filter, or all. Try it with `dry_run`, or give `undo_for`."""
    return await _work_off(call, selection, "drop")


async def _find_letter(call: ApiCall, message_id: str) -> Record:
    record = await find_record(call, message_id)
    if record.state not in LETTERS:
        raise call.not_found(f"dead letter {message_id}")
    return record


def _why_not(record: Record) -> str:
    return "it cannot be decoded" if not record.message.method else "it is not a dead letter any more"


async def _work_off(call: ApiCall, selection: LetterSelection, action: str) -> LettersDone:
    """Change what is selected, now or after a while."""
    _check(selection)
    choice = await _choice_of(call, selection)
    about = selection.model_dump(exclude_defaults=True, exclude={"ids"})
    if selection.dry_run or selection.undo_for is not None:
        counted = await count_letters(call.gate.outbox, choice)
        done = LettersDone(
            selected=counted.selected,
            done=0,
            more=counted.more,
            dry_run=selection.dry_run,
            ended_by=choice.ended_by,
        )
        call.changed(bot=choice.bot, detail=f"0 of {counted.selected} by {about}")
        if selection.undo_for is None or selection.dry_run:
            return done
        asked = await call.pending.ask(action, choice, counted.selected, call.principal, selection.undo_for)
        call.changed(bot=choice.bot, target=f"pending {asked.id}", detail=f"{counted.selected} by {about}")
        return done.model_copy(update={"undo": _undo_path(asked), "due_at": asked.due_at})
    selected = changed = 0
    has_more = False
    async for step in change_letters(call.gate.outbox, choice, change_of(call.gate.outbox, action)):
        selected, changed, has_more = selected + step.selected, changed + step.done, step.more
    call.changed(bot=choice.bot, detail=f"{changed} of {selected} by {about}")
    return LettersDone(selected=selected, done=changed, more=has_more, dry_run=False)


async def _choice_of(call: ApiCall, selection: LetterSelection) -> LetterChoice:
    """Return what is meant, of those that have ended by now. Raises ProblemError."""
    ids: tuple[TicketId, ...] | None = None
    if selection.ids is not None:
        records = [await _find_letter(call, one) for one in dict.fromkeys(selection.ids)]
        ids = tuple(record.message.id for record in records)
    limit = selection.limit or (MOST_AT_ONCE if selection.undo_for is None else None)
    by_age = call.clock.now() - (selection.older_than or 0.0)
    return LetterChoice(
        ended_by=by_age if selection.ended_by is None else min(by_age, selection.ended_by),
        ids=ids,
        bot=call.bot_filter(selection.bot),
        chat_id=None if selection.chat_id is None else check_chat(selection.chat_id),
        reason=selection.reason,
        state=State(selection.state or State.DEAD),
        limit=limit,
    )


def _undo_path(action: PendingAction) -> str:
    return f"/api/v1/dead-letters/pending/{action.id}/undo"


def _pending_view(action: PendingAction) -> PendingView:
    choice = action.choice
    return PendingView(
        id=action.id,
        action="replay" if action.action == "replay" else "drop",
        bot=choice.bot,
        chat_id=choice.chat_id,
        reason=choice.reason,
        state=None if choice.ids is not None else "parked" if choice.state is State.PARKED else "dead",
        by_ids=choice.ids is not None,
        selected=action.selected,
        done=action.done,
        asked_by=action.principal,
        asked_at=action.asked_at,
        due_at=action.due_at,
        undo=None if action.is_begun else _undo_path(action),
    )


def _check(selection: LetterSelection) -> None:
    described = selection.everything or any(
        value is not None
        for value in (
            selection.bot,
            selection.chat_id,
            selection.reason,
            selection.state,
            selection.older_than,
        )
    )
    if (selection.ids is not None) == described:
        raise ProblemError(
            BAD_INPUT, "say which letters: either ids, or a filter such as reason, or everything: true"
        )
