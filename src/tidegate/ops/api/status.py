"""Routes that show how the whole service does: the queue, pollers, the OpenAPI document."""

import asyncio
from typing import Annotated, Any, Final

from fastapi import Header
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from tidegate.ops.access import Role
from tidegate.ops.api.api_call import Call
from tidegate.ops.api.bodies import JSON
from tidegate.ops.api.parameters import BotField, ChatField, Seconds
from tidegate.ops.api.routes import RouteAccess, RouteTable, Scope
from tidegate.ops.metrics_text import render_metrics
from tidegate.ops.reports import queue_report

ROUTES = RouteTable("status")
METRICS_EXAMPLE: Final = 'tidegate_sends_total{bot="42",kind="queued",outcome="delivered"} 41.0\n'
VIEWER_OF_ALL = RouteAccess(Role.VIEWER, Scope.ALL)


class QueueLines(BaseModel):
    high: int
    normal: int
    low: int
    retry: int
    dlq: int = Field(description="Dead and parked messages.")


class SenderView(BaseModel):
    pid: int
    command: str


class QueueHealth(BaseModel):
    ready: bool
    reasons: list[str]


class PausedPlace(BaseModel):
    bot: BotField
    chat_id: ChatField | None


class BotNumbers(BaseModel):
    """How many messages of a bot are in which state."""

    bot: BotField
    waiting: int = Field(description="All that wait: high, normal, low and retry.")
    high: int
    normal: int
    low: int
    retry: int
    sending: int
    dead: int
    parked: int
    delivered: int = Field(description="Since the store counts them by bot.")
    refused: int = Field(description="429s heard, likewise.")
    oldest_at: Seconds | None = Field(
        description="Since when the oldest message may go that waits; null if none does."
    )
    oldest_seconds: float | None = Field(description="How long ago that was.")


class QueueStats(BaseModel):
    """How many messages are in which state."""

    model_config = ConfigDict(extra="allow")

    stats: QueueLines
    total_queued: int = Field(description="All that wait: high, normal, low and retry.")
    total_failed: int = Field(description="The same as stats.dlq.")
    sending: int
    parked: int
    dead: int
    delivered: int
    expired: int
    cancelled: int
    replaced: int
    refused: int = Field(description="429s heard.")
    direct: int
    direct_refused: int
    direct_failed: int
    direct_given_up: int
    spooled: int
    oldest_at: Seconds | None = Field(
        description="Since when the oldest message may go that waits; null if none does."
    )
    oldest_seconds: float | None = Field(description="How long ago that was.")
    by_bot: list[BotNumbers]
    sender: SenderView | None = None
    processes: int | None = Field(
        default=None, description="Other processes that have the store open (Redis)."
    )
    delivers: bool | None = Field(default=None, description="Whether some process delivers (Redis).")
    health: QueueHealth | None = None
    bots: list[BotField]
    paused: list[PausedPlace]


class PollerView(BaseModel):
    """The statistics of one poller, and the same as a table for people."""

    name: str
    title: str
    active_subscriptions: int
    cycles: int
    batches: int
    requests: int
    average_batch_size: float
    requests_avoided: int
    reduction: float = Field(description="Of requests, in percent, compared with one for each subscriber.")
    told: int
    telling: int
    untold: int
    failed_callbacks: int
    failed_batches: int
    last_cycle_seconds: float
    unreadable: int
    table: str


class PollerList(BaseModel):
    items: list[PollerView]


@ROUTES.get("/queue/stats", VIEWER_OF_ALL, summary="Queue statistics")
async def show_queue(call: Call) -> QueueStats:
    """How many messages are in which state, which process sends, and what is paused."""
    return QueueStats(**await queue_report(call.gate))


@ROUTES.get("/api/v1/polling", VIEWER_OF_ALL, summary="Polling statistics")
async def show_polling(call: Call) -> PollerList:
    """The statistics of the pollers in the process that answers."""
    found = [(poller.name, poller.stats()) for poller in call.gate.core.pollers]
    return PollerList(
        items=[PollerView(name=name, **one.as_dict(), table=one.table()) for name, one in found]
    )


@ROUTES.get(
    "/metrics",
    VIEWER_OF_ALL,
    summary="Metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text, OpenMetrics, or one flat object, as `Accept` says.",
            "content": {
                "text/plain": {"schema": {"type": "string"}, "example": METRICS_EXAMPLE},
                "application/openmetrics-text": {
                    "schema": {"type": "string"},
                    "example": f"{METRICS_EXAMPLE}# EOF\n",
                },
                "application/json": {
                    "schema": {"type": "object", "additionalProperties": {"type": "number"}},
                    "example": {"telegram_429_count": 0, "queue_high": 3},
                },
            },
        }
    },
)
async def show_metrics(
    call: Call,
    accept: Annotated[str, Header(description="text/plain, or application/json.", examples=[JSON])] = "",
) -> Response:
    """The metrics of this process, for Prometheus; as JSON with `Accept: application/json`."""
    content_type, body = await render_metrics(call.metrics, accept)
    return Response(body, headers={"content-type": content_type})


@ROUTES.get("/openapi.json", RouteAccess(Role.VIEWER, Scope.NO_BOT), summary="This document")
async def show_document() -> dict[str, Any]:
    """The OpenAPI document of this API."""
    from tidegate.ops.api.document import openapi_document  # noqa: PLC0415  (it imports all routes)

    return await asyncio.to_thread(openapi_document)  # it reads files, and takes a quarter of a second
