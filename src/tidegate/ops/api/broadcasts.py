"""Routes of broadcasts: begin one from a list or a file, follow it, pause, resume and cancel it."""

import csv
import io
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from tidegate.broadcast.audience_upload import MAX_UPLOAD, received_audience
from tidegate.broadcast.message import dedup_prefix
from tidegate.broadcast.preview import preview
from tidegate.errors import BadInputError
from tidegate.model import BotId, Priority, Record, State
from tidegate.ops.access import Role
from tidegate.ops.api.api_call import ApiCall, Call
from tidegate.ops.api.bodies import CSV, NDJSON, media_type
from tidegate.ops.api.pagination import Cursor, ItemPage, Limit, decode_cursor, encode_cursor
from tidegate.ops.api.parameters import EXAMPLE_ID, BotField, BotFilter, ChatField, JsonBody, Seconds
from tidegate.ops.api.routes import RouteAccess, RouteTable, Scope
from tidegate.outbox.campaigns import CampaignRecord

ROUTES = RouteTable("broadcasts")
PREVIEW_BYTES: Final = 4_000_000  # of JSON, in which a text may take twice its room
LIST_BYTES: Final = 2_000_000  # of an audience in the body, which is read at once; more is uploaded
PATIENCE: Final = 0.1  # seconds for counting messages of broadcasts that no process runs
TEXTS: Final = ("fields", "trouble")  # hidden from viewers
FORECAST: Final = ("ends_at", "reasons")  # of a view, not of the record
MISSED: Final = frozenset({State.DEAD, State.PARKED, State.EXPIRED, State.CANCELLED, State.REPLACED})
LOOK_FOR: Final = 0.15  # seconds for the chats of one page, of a broadcast that has reached nearly all
MISSED_EXAMPLE: Final = "chat_id,state,reason,ended_at,description\n1001,dead,blocked,1767603600.0,\n"
MISSED_PER_STEP: Final = 500  # chats that are read together for a download

NamePath = Annotated[str, Path(pattern=r"^[\w.-]{1,64}$", examples=["spring-sale"])]
_NAME = Field(pattern=r"^[\w.-]{1,64}$", examples=["spring-sale"])


class NewBroadcast(JsonBody):
    """A broadcast. `audience`: chats, or rows with a `chat_id`; `text`: a template for the fields of a row.

    Without a text each row has its own. Every other parameter as Telegram spells it, and the options of a
    message, such as priority (low, if not given) and expires_in.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                "name": "spring-sale",
                "audience": [{"chat_id": 1001, "name": "Ada"}, {"chat_id": 1002, "name": "Bob"}],
                "text": "Hello {name}, our sale begins today.",
            }
        },
    )

    name: Annotated[str, _NAME]
    bot: BotField | None = None
    audience: list[int | str | dict[str, Any]] = Field(min_length=1)
    text: str | None = Field(default=None, max_length=100_000)
    ahead: int | None = Field(
        default=None, ge=1, le=100_000, description="How many wait in the queue at once."
    )


class BroadcastView(BaseModel):
    """A broadcast as the store knows it. A viewer gets null for the fields of its messages."""

    bot: BotField
    name: str
    state: Literal["running", "paused", "finished", "cancelled", "failed", "stopped", "delivering"]
    audience: str = Field(description="In words.")
    total: int | None = Field(description="Rows, if that is known.")
    counts: dict[str, int] = Field(description="read, accepted, delivered, dead, waiting …")
    started_at: Seconds
    changed_at: Seconds
    ended_at: Seconds | None
    trouble: str | None = None
    fields: dict[str, Any] | None = None
    ends_at: Seconds | None = Field(
        default=None,
        description="When the last message leaves, by the limit of the bot, if nothing else is sent. Null: it"
        " has ended, it does not run, or nobody knows how many rows there are.",
    )
    reasons: dict[str, int] | None = Field(
        default=None,
        description="Of the dead and parked, in GET of one broadcast; null while they are being counted.",
    )


class MissedChat(BaseModel):
    """A chat that a broadcast did not reach. A viewer gets null for the description, which may quote."""

    chat_id: ChatField
    state: Literal["dead", "parked", "expired", "cancelled", "replaced"]
    reason: str | None = Field(examples=["blocked"])
    description: str | None = Field(description="What Telegram said.")
    ended_at: Seconds | None
    message_id: str = Field(examples=[EXAMPLE_ID])


class MissedPage(ItemPage[MissedChat]):
    """Chats in no order. A page may be short, or empty, and have a cursor all the same."""


class BroadcastDraft(JsonBody):
    """A broadcast to look at before it begins. `content`: a file, or its beginning, as text."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "content": "chat_id,name\n1001,Ada\n1002,Bob\n",
                "text": "Hello {name}, our sale begins today.",
            }
        },
    )

    bot: BotField | None = None
    content: str = Field(
        min_length=1,
        max_length=LIST_BYTES,
        description="CSV with a header, a JSON object in each line, or a chat in each line.",
    )
    is_whole: bool = Field(default=True, description="False: more follows, and the last line may be cut off.")
    rows: int | None = Field(
        default=None, ge=1, le=1_000_000_000, description="How many there are in the whole file, about."
    )
    text: str | None = Field(default=None, max_length=100_000)
    parse_mode: Literal["HTML", "MarkdownV2"] | None = None
    priority: Priority = Priority.LOW


class DraftMessage(BaseModel):
    line: int
    chat_id: ChatField
    text: str


class LineProblem(BaseModel):
    line: int
    detail: str


class SendingForecast(BaseModel):
    """By the limit of the bot, learned or set, if nothing else is sent."""

    messages: int
    per_second: float
    seconds: float = Field(description="Until the last one leaves.")
    ends_at: Seconds


class DraftPreview(BaseModel):
    """A preview: the first messages, and the first rows that are bad."""

    messages: list[DraftMessage]
    good: int
    bad: int = Field(description="While there is one, nothing of the broadcast is sent.")
    errors: list[LineProblem] = Field(description="The first of the bad ones.")
    forecast: SendingForecast


class BroadcastPage(ItemPage[BroadcastView]):
    """Broadcasts, the oldest first."""


def _view(call: ApiCall, record: CampaignRecord) -> BroadcastView:
    hidden = (*FORECAST, *(() if call.sees_texts else TEXTS))
    known = {name: getattr(record, name) for name in BroadcastView.model_fields if name not in hidden}
    return BroadcastView(**msgspec.to_builtins(known))


async def _with_forecast(call: ApiCall, record: CampaignRecord) -> BroadcastView:
    return _view(call, record).model_copy(update={"ends_at": await _end_of(call, record)})


async def _end_of(call: ApiCall, record: CampaignRecord) -> float | None:
    """Return when the last message leaves; None if nobody knows, or if it does not run."""
    counts = record.counts
    unread = 0 if record.state == "delivering" else None
    if record.state == "running" and record.total is not None:
        unread = max(0, record.total - counts.get("read", 0))
    if unread is None:
        return None
    with suppress(BadInputError):  # the bot was removed
        paid = record.fields.get("allow_paid_broadcast")
        left = unread + counts.get("waiting", 0)
        return (await call.gate.forecast(left, bot=record.bot, allow_paid_broadcast=paid)).ends_at
    return None


@ROUTES.get("/api/v1/broadcasts", RouteAccess(Role.VIEWER, Scope.FILTER), summary="List broadcasts")
async def list_broadcasts(
    call: Call, *, bot: BotFilter = None, cursor: Cursor = None, limit: Limit = 50
) -> BroadcastPage:
    """The broadcasts that the store knows, the oldest first: the latest 200."""
    whose, start = call.bot_filter(bot), decode_cursor("broadcasts", cursor, int) or 0
    found = [one for one in await call.gate.campaigns(patience=PATIENCE) if whose in {None, one.bot}]
    more = start + limit if len(found) > start + limit else None
    items = [await _with_forecast(call, one) for one in found[start : start + limit]]
    return BroadcastPage(items=items, next_cursor=encode_cursor("broadcasts", more))


@ROUTES.change(
    "POST",
    "/api/v1/broadcasts",
    RouteAccess(Role.OPERATOR, Scope.BODY),
    "broadcasts.start",
    largest_body=LIST_BYTES,
    status_code=201,
    summary="Begin a broadcast",
)
async def start_broadcast(call: Call, new: NewBroadcast) -> BroadcastView:
    """Send to everybody in a list. Its rows are stored, and it goes on whichever process ends.

    All rows are checked first: if one is bad, the problem names it, and nothing is sent. The same request
    again returns the broadcast that runs; another one under its name is a conflict (409).
    """
    bot = await call.bot_for(new.bot)
    fields = dict(new.model_extra or {})
    record = await call.gate.start_broadcast(
        new.name, new.audience, new.text, bot=bot, ahead=new.ahead, **{"priority": Priority.LOW, **fields}
    )
    call.changed(bot=bot, target=new.name, detail=f"{len(new.audience)} rows")
    return _view(call, record)


@ROUTES.ask(
    "/api/v1/broadcasts/preview",
    RouteAccess(Role.OPERATOR, Scope.BODY),
    largest_body=PREVIEW_BYTES,
    summary="Preview a broadcast",
)
async def preview_broadcast(call: Call, draft: BroadcastDraft) -> DraftPreview:
    """Fill in the first messages, check the rows, and say how long sending takes. Changes nothing.

    Rows are checked by the same rules as those of a broadcast that begins.
    """
    bot = await call.bot_for(draft.bot)
    fields: dict[str, Any] = {"priority": draft.priority}
    if draft.parse_mode is not None:
        fields["parse_mode"] = draft.parse_mode
    now, is_whole = call.clock.now(), draft.is_whole
    seen = await preview(draft.content, draft.text, fields, bot=bot, now=now, is_whole=is_whole)
    forecast = await call.gate.forecast(draft.rows if draft.rows and not is_whole else seen.good, bot=bot)
    return DraftPreview(
        messages=[DraftMessage(**msgspec.structs.asdict(one)) for one in seen.messages],
        good=seen.good,
        bad=seen.bad,
        errors=[LineProblem(line=one.number, detail=one.reason) for one in seen.errors],
        forecast=SendingForecast(
            messages=forecast.messages,
            per_second=forecast.rate.count / forecast.rate.seconds,
            seconds=forecast.seconds,
            ends_at=forecast.ends_at,
        ),
    )


@ROUTES.change(
    "POST",
    "/api/v1/broadcasts/{name}/upload",
    RouteAccess(Role.OPERATOR, Scope.FILTER),
    "broadcasts.start",
    takes=CSV | NDJSON,
    largest_body=MAX_UPLOAD,
    status_code=201,
    summary="Begin a broadcast from a file",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "text/csv": {"schema": {"type": "string"}, "example": "chat_id,name\n1001,Ada\n1002,Bob\n"},
                "application/x-ndjson": {
                    "schema": {"type": "string"},
                    "example": '{"chat_id": 1001, "name": "Ada"}\n{"chat_id": 1002, "name": "Bob"}\n',
                },
            },
        }
    },
)
async def upload_broadcast(
    call: Call,
    name: NamePath,
    *,
    bot: BotFilter = None,
    text: Annotated[
        str | None,
        Query(
            max_length=4096,
            description="A template for the columns, such as Hello {name}; else a column.",
            examples=["Hello {name}"],
        ),
    ] = None,
    parse_mode: Annotated[Literal["HTML", "Markdown", "MarkdownV2"] | None, Query()] = None,
    priority: Annotated[Priority, Query()] = Priority.LOW,
    ahead: Annotated[
        int | None,
        Query(ge=1, le=100_000, description="How many wait in the queue at once.", examples=[1000]),
    ] = None,
) -> BroadcastView:
    """Send to everybody in a file, which is read as it arrives: CSV with a header, or a JSON object a line.

    Otherwise as a broadcast from a list.
    """
    whose = await call.bot_for(bot)
    fields: dict[str, Any] = {"priority": priority} | ({"parse_mode": parse_mode} if parse_mode else {})
    suffix = "csv" if media_type(call.content_type) in CSV else "ndjson"
    async with received_audience(call.parts(), f"upload.{suffix}") as file:
        record = await call.gate.start_broadcast(name, file, text, bot=whose, ahead=ahead, **fields)
    call.changed(bot=whose, target=name, detail=f"{record.total} rows")
    return _view(call, record)


@ROUTES.get("/api/v1/broadcasts/{name}", RouteAccess(Role.VIEWER, Scope.OBJECT), summary="Show a broadcast")
async def show_broadcast(call: Call, name: NamePath, bot: BotFilter = None) -> BroadcastView:
    """The progress of a broadcast. If several bots have one of this name, say which bot."""
    record = await call.gate.campaign(name, bot=call.bot_filter(bot), patience=PATIENCE)
    view = await _with_forecast(call, record)
    reasons = await call.gate.core.campaign_control.reasons(record, PATIENCE)
    return view.model_copy(update={"reasons": reasons})


@ROUTES.get(
    "/api/v1/broadcasts/{name}/missed",
    RouteAccess(Role.VIEWER, Scope.OBJECT),
    summary="List who was not reached",
)
async def list_missed(
    call: Call, name: NamePath, *, bot: BotFilter = None, cursor: Cursor = None, limit: Limit = 50
) -> MissedPage:
    """The chats whose message is dead, parked, expired or cancelled, and why."""
    record = await call.gate.campaign(name, bot=call.bot_filter(bot), patience=0.0)
    return await missed_page(call, record.bot, name, cursor, limit)


async def missed_page(
    call: ApiCall, bot: int, name: str, cursor: str | None, limit: int, *, seconds: float = LOOK_FOR
) -> MissedPage:
    """Return chats that a broadcast did not reach, which this principal may see; look for so many seconds."""
    place = decode_cursor("missed", cursor, str) or ""
    until = call.clock.monotonic() + seconds
    found: list[Record] = []
    while True:
        page = await call.gate.outbox.keyed_records(
            BotId(bot), dedup_prefix(name), MISSED, cursor=place, limit=limit - len(found)
        )
        found += page.records
        place = page.cursor
        if not place or len(found) >= limit or call.clock.monotonic() > until:
            break
    items = [_missed(call, one) for one in found]
    return MissedPage(items=items, next_cursor=encode_cursor("missed", place or None))


@ROUTES.get(
    "/api/v1/broadcasts/{name}/missed.csv",
    RouteAccess(Role.VIEWER, Scope.OBJECT),
    summary="Download who was not reached",
    response_class=Response,
    responses={
        200: {
            "description": "CSV with a header, which can be the audience of another broadcast.",
            "content": {"text/csv": {"schema": {"type": "string"}, "example": MISSED_EXAMPLE}},
        }
    },
)
async def download_missed(call: Call, name: NamePath, bot: BotFilter = None) -> Response:
    """The same as a file with a line for each chat, sent while it is read."""
    record = await call.gate.campaign(name, bot=call.bot_filter(bot), patience=0.0)
    headers = {"content-disposition": f'attachment; filename="{name}-not-reached.csv"'}
    return StreamingResponse(_csv_lines(call, record), media_type="text/csv; charset=utf-8", headers=headers)


async def _csv_lines(call: ApiCall, record: CampaignRecord) -> AsyncIterator[str]:
    columns = ["chat_id", "state", "reason", "ended_at", *(["description"] if call.sees_texts else [])]
    yield _csv_line(columns)
    cursor, is_first = "", True
    while cursor or is_first:
        is_first = False
        page = await call.gate.outbox.keyed_records(
            record.bot, dedup_prefix(record.name), MISSED, cursor=cursor, limit=MISSED_PER_STEP
        )
        lines = [
            _csv_line([_cell(getattr(one, name)) for name in columns])
            for one in map(partial(_missed, call), page.records)
        ]
        if lines:
            yield "".join(lines)
        cursor = page.cursor


def _cell(value: object) -> str:
    """Return a value as text. A spreadsheet would read one that begins like a formula as such."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(("=", "+", "\t", "\r")) else text


def _csv_line(values: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(values)
    return line.getvalue()


def _missed(call: ApiCall, record: Record) -> MissedChat:
    return MissedChat(
        chat_id=record.message.chat_id,
        state=record.state.value,  # type: ignore[arg-type]  # one of MISSED
        reason=record.reason,
        description=record.description if call.sees_texts else None,
        ended_at=record.settled_at,
        message_id=record.message.id,
    )


@ROUTES.change(
    "POST",
    "/api/v1/broadcasts/{name}/pause",
    RouteAccess(Role.OPERATOR, Scope.OBJECT),
    "broadcasts.pause",
    summary="Pause a broadcast",
)
async def pause_broadcast(call: Call, name: NamePath, bot: BotFilter = None) -> BroadcastView:
    """Put no more of its messages into the queue. Those that are there are sent."""
    return _steered(call, await call.gate.pause_campaign(name, bot=call.bot_filter(bot)))


@ROUTES.change(
    "POST",
    "/api/v1/broadcasts/{name}/resume",
    RouteAccess(Role.OPERATOR, Scope.OBJECT),
    "broadcasts.resume",
    summary="Resume a broadcast",
)
async def resume_broadcast(call: Call, name: NamePath, bot: BotFilter = None) -> BroadcastView:
    """End a pause. One whose process has ended goes on once a worker resumes it, within seconds."""
    return _steered(call, await call.gate.resume_campaign(name, bot=call.bot_filter(bot)))


@ROUTES.change(
    "POST",
    "/api/v1/broadcasts/{name}/cancel",
    RouteAccess(Role.OPERATOR, Scope.OBJECT),
    "broadcasts.cancel",
    summary="Cancel a broadcast",
)
async def cancel_broadcast(call: Call, name: NamePath, bot: BotFilter = None) -> BroadcastView:
    """End a broadcast, and cancel its messages that wait."""
    return _steered(call, await call.gate.cancel_campaign(name, bot=call.bot_filter(bot)))


def _steered(call: ApiCall, record: CampaignRecord) -> BroadcastView:
    call.changed(bot=record.bot, target=record.name)
    return _view(call, record)
