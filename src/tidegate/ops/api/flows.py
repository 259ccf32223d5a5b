"""Routes of flows: which run in this process, how many people are in each state, and their pictures."""

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, Field

from tidegate.flows.model import FlowState, transitions_of
from tidegate.flows.registry import RunningFlow
from tidegate.ops.access import Role
from tidegate.ops.api.api_call import ApiCall, Call
from tidegate.ops.api.parameters import BotField, BotFilter
from tidegate.ops.api.problems import BAD_INPUT, ProblemError
from tidegate.ops.api.routes import RouteAccess, RouteTable, Scope

ROUTES = RouteTable("flows")

NamePath = Annotated[str, Path(min_length=1, max_length=200, examples=["order"])]


class FlowStateView(BaseModel):
    """A state, and how many sessions are in it now."""

    name: str
    people: int
    is_final: bool
    leads_to: list[str] = Field(description="States.")


class FlowSummary(BaseModel):
    """A flow that runs in the process that answers. Its counters begin when it was started."""

    name: str
    bot: BotField
    people: int = Field(description="Sessions that have not ended.")
    states: list[FlowStateView]
    events: int
    begun: int = Field(description="Sessions.")
    ended: int = Field(description="Sessions.")
    errors: int = Field(description="Events that the flow could not handle.")
    failed_works: int


class FlowView(FlowSummary):
    """A flow with its pictures. `svg` needs no other file, and has the numbers of people in it."""

    mermaid: str
    svg: str


class FlowList(BaseModel):
    items: list[FlowSummary]


@ROUTES.get("/api/v1/flows", RouteAccess(Role.VIEWER, Scope.FILTER), summary="List flows")
async def list_flows(call: Call, bot: BotFilter = None) -> FlowList:
    """The flows that run in the process that answers: others know nothing of them."""
    found = call.gate.core.flows.all(call.bot_filter(bot))
    return FlowList(items=[await _summary(call, flow) for flow in found])


@ROUTES.get("/api/v1/flows/{name}", RouteAccess(Role.VIEWER, Scope.OBJECT), summary="Show a flow")
async def show_flow(call: Call, name: NamePath, bot: BotFilter = None) -> FlowView:
    """A flow as Mermaid text and as an SVG picture. If several bots have one of this name, say which bot."""
    running = find_flow(call, name, bot)
    summary = await _summary(call, running)
    counts = {state.name: state.people for state in summary.states}
    return FlowView(**summary.model_dump(), mermaid=running.flow.diagram(), svg=running.flow.svg(counts))


def find_flow(call: ApiCall, name: str, bot: int | None) -> RunningFlow:
    """Return a flow that runs here. Raises ProblemError."""
    found = [one for one in call.gate.core.flows.all(call.bot_filter(bot)) if one.flow.name == name]
    if not found:
        raise call.not_found(f"flow {name}")
    if len(found) > 1:
        bots = ", ".join(str(one.bot) for one in found)
        raise ProblemError(BAD_INPUT, f"several bots have a flow {name}: say which bot, one of {bots}")
    return found[0]


async def _summary(call: ApiCall, running: RunningFlow) -> FlowSummary:
    """Return a flow with its people: those of all bots, unless the token is for one."""
    people, stats = await running.people(call.bot_filter(None)), running.stats()
    return FlowSummary(
        name=running.flow.name,
        bot=running.bot,
        people=sum(people.values()),
        states=[_state(state, people.get(state.name, 0)) for state in running.flow.states],
        events=stats.events,
        begun=stats.begun,
        ended=stats.ended,
        errors=stats.errors,
        failed_works=stats.failed_works,
    )


def _state(state: FlowState, people: int) -> FlowStateView:
    targets = dict.fromkeys(one.to or state.name for one in transitions_of(state))
    return FlowStateView(name=state.name, people=people, is_final=state.final, leads_to=list(targets))
