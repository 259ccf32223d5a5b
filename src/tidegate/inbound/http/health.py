"""`/healthz`: the process answers. `/readyz`: it can do its work."""

from typing import Final

from tidegate.clock import Clock
from tidegate.errors import TidegateError
from tidegate.inbound.http.answers import OK, Answer, not_by
from tidegate.inbound.http.door import Door
from tidegate.inbound.http.request import Request
from tidegate.reports import discreet

LOOK: Final = 5.0  # seconds that a look at the store may take


def tell_health(request: Request) -> Answer:
    """Nothing is asked: neither Telegram nor the store can make a process look dead."""
    return OK if request.method in {"GET", "HEAD"} else not_by("GET, HEAD")


async def tell_readiness(door: Door, clock: Clock, request: Request) -> Answer:
    if request.method not in {"GET", "HEAD"}:
        return not_by("GET, HEAD")
    problems = await _problems(door, clock)
    return Answer(503, "not ready", problems=problems) if problems else OK


async def _problems(door: Door, clock: Clock) -> dict[str, str]:
    try:
        async with clock.timeout(LOOK):
            found = await door.readiness()
    except TimeoutError:
        return {"store": f"does not answer within {LOOK:g} s"}
    except TidegateError as error:
        return {"gate": discreet(str(error))}
    return {name: discreet(text) for name, text in found.items()}
