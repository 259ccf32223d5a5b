"""`POST /hooks/{name}`: an event that somebody signed is on disk before its sender hears that it arrived."""

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError
from tidegate.inbound.http.answers import OK, Answer, not_by, not_now
from tidegate.inbound.http.door import Door
from tidegate.inbound.http.hook import Hook, HookEvent, arrival_of_event, kept_headers
from tidegate.inbound.http.request import Bodies, Request
from tidegate.inbound.signed import Refusal, check

NO_SUCH_HOOK = Answer(404, "there is no such hook here")


async def take_event(door: Door, bodies: Bodies, clock: Clock, request: Request, name: str) -> Answer | None:
    if request.method != "POST":
        return not_by("POST")
    hook = door.hooks.get(name)
    if hook is None:
        return NO_SUCH_HOOK
    try:
        reception = door.reception()
        body = await bodies.read(request, hook.limit)
        if not isinstance(body, bytes):
            return body
        event = _event(hook, request, body, clock.now())
        if isinstance(event, Refusal):
            return Answer(event.status, event.reason)
        await reception.accept([arrival_of_event(event)])
    except (ClosedError, StoreError) as error:
        return not_now(error)
    return OK


def _event(hook: Hook, request: Request, body: bytes, now: float) -> HookEvent | Refusal:
    found = check(hook.scheme, hook.secrets, request.headers, body, now, window=hook.window)
    if isinstance(found, Refusal):
        return found
    return HookEvent(hook.name, found.id, found.timestamp, now, kept_headers(request.headers), body)
