"""What a session needs while it is in its state: decided when it enters, and again after a restart."""

from typing import Any

from tidegate.flows.effects import Effect, RunWork, SetTimer, Subscribe
from tidegate.flows.flow import Flow
from tidegate.flows.model import FlowError
from tidegate.flows.session import Session


def upkeep(flow: Flow, session: Session) -> list[Effect]:
    """Its subscription, its timer, its work. None for a session that has ended, or whose state is gone.

    Raises FlowError if its data does not say what to subscribe to.
    """
    state = flow.by_name.get(session.state)
    if state is None or session.ended:
        return []
    needed: list[Effect] = []
    if (subscribed := subscription(flow, session)) is not None:
        needed.append(subscribed)
    elif state.poll is not None:
        text = f"{state.poll.key} is not in the data: the poll {state.poll.name} needs it, so save it before"
        raise FlowError(text, flow=flow.name, state=state.name)
    if (at := session.timer) is not None:
        needed.append(SetTimer(at, session.visit))
    if state.run is not None:
        needed.append(RunWork(state.run.name, session.visit))
    return needed


def subscription(flow: Flow, session: Session) -> Subscribe | None:
    """What it waits for now, if its data says."""
    state = flow.by_name.get(session.state)
    if state is None or state.poll is None or session.ended:
        return None
    key = session.data.get(state.poll.key)
    return None if key is None or key == "" else Subscribe(state.poll.name, str(key))


def added_times(flow: Flow, session: Session, at: float) -> dict[str, Any] | None:
    """The times that its timer needs, if the flow has got a timeout or a lifetime since it was entered."""
    state, missing = flow.by_name[session.state], dict[str, Any]()
    if session.expires_at is None and flow.lifetime is not None:
        missing["expires_at"] = session.entered_at + flow.lifetime
    if state.timeout is not None and not session.timed:
        missing |= {"due": at + state.timeout.seconds, "timed": True}
    return missing or None
