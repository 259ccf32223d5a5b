"""What is still to be done for a session, and what is not: decided purely."""

import msgspec

from tidegate.flows.effects import Pending, Run, Unsubscribe
from tidegate.flows.events import Begin, Event, Expired, Polled, Signal, TimedOut, WorkDone, WorkFailed
from tidegate.flows.flow import Flow
from tidegate.flows.session import Session


def is_unrepeated(event: Event) -> bool:
    """Whether nobody may bring it again after a crash. A reversal ends what would bring it; and a timer rings
    again until it is cleared, which is before the last of what it caused is done.
    """
    if isinstance(event, Polled):
        return event.kind == "reversed"
    return isinstance(event, Begin | Signal | WorkDone | WorkFailed | TimedOut | Expired)


def due_works(session: Session) -> tuple[Pending, ...]:
    """The work of the visit that it is on. That of another would come too late."""
    if session.ended:
        return ()
    return tuple(
        one for one in session.pending if isinstance(one.effect, Run) and one.effect.visit == session.visit
    )


def with_pending(session: Session, pending: tuple[Pending, ...]) -> Session:
    return session if pending == session.pending else msgspec.structs.replace(session, pending=pending)


def without_work(session: Session, run: Run) -> Session:
    return with_pending(session, tuple(one for one in session.pending if one.effect != run))


def without_what_is_over(session: Session, event: Event) -> Session:
    """The work that has an outcome. And, of what came true, the subscription: its poller ends it as soon as
    it was told; were it ended before, nobody would tell it again after a crash.
    """
    match event:
        case WorkDone() | WorkFailed():
            return without_work(session, Run(event.work, event.visit))
        case Polled(kind="met" | "gone"):
            ends = Unsubscribe(event.poll, event.key)
            left = (one for one in session.pending if (one.event, one.effect) != (event.id, ends))
            return with_pending(session, tuple(left))
        case _:
            return session


def without_otherwise(flow: Flow) -> Flow:
    """The same, but silent about what is out of place."""
    states = tuple(msgspec.structs.replace(state, otherwise="") for state in flow.states)
    return msgspec.structs.replace(flow, otherwise="", states=states)


def nobody(flow: Flow) -> Session:
    """Stands for a session where there is none."""
    return Session(flow=flow.name, state=flow.initial, visit=0)
