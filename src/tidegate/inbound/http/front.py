"""The front: an ASGI application, to be served alone or mounted into another."""

from tidegate.clock import Clock
from tidegate.inbound.http.answers import NOT_FOUND, Answer
from tidegate.inbound.http.door import Door
from tidegate.inbound.http.health import tell_health, tell_readiness
from tidegate.inbound.http.hooks import take_event
from tidegate.inbound.http.refusals import Refusals
from tidegate.inbound.http.request import Bodies, Receive, Request, Scope, Send
from tidegate.inbound.http.webhook import take_update
from tidegate.reports import discreet

_WEBHOOK = "/webhook/telegram/"
_HOOK = "/hooks/"


class Front:
    """Answers 200 for what is held durably, and for nothing else. Everything that it keeps is bounded.

    Served alone, it starts and stops with the server. Where another application mounts it, that one calls
    `start` and `stop`: a mounted application does not hear of them. Before and after, it answers 503.
    """

    def __init__(self, door: Door, clock: Clock | None = None) -> None:
        self._door = door
        self._clock = clock or Clock()
        self._updates = Bodies(self._clock)
        self._events = Bodies(
            self._clock
        )  # from anybody, until they were read: they must not hold up updates
        self._is_started = False
        self._refusals = Refusals(self._clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(Request(scope, receive), send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def start(self) -> None:
        """Open the gate, deliver, and hand out what arrives. Raises what is in the way of that."""
        await self._door.start()
        self._is_started = True

    async def stop(self) -> None:
        """Take back `start`; nothing, if that did not succeed."""
        if self._is_started:
            self._is_started = False
            await self._door.stop()

    async def _serve(self, request: Request, send: Send) -> None:
        answer = await self._answer(request)
        if answer is None:
            return
        if answer.error and not answer.problems:
            self._refusals.tell(request, answer)
        # A body that nobody read must not be read to its end for the sake of the next request.
        closes = request.may_go_on and request.can_close
        body = answer.body()
        headers = answer.headers(len(body), closes=closes)
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})

    async def _answer(self, request: Request) -> Answer | None:
        path = request.path
        if path.startswith(_WEBHOOK):
            return await take_update(self._door, self._updates, request, path.removeprefix(_WEBHOOK))
        if path.startswith(_HOOK):
            name = path.removeprefix(_HOOK)
            return await take_event(self._door, self._events, self._clock, request, name)
        if path == "/healthz":
            return tell_health(request)
        if path == "/readyz":
            return await tell_readiness(self._door, self._clock, request)
        return NOT_FOUND

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            step = (await receive())["type"]
            act = self.start if step == "lifespan.startup" else self.stop
            try:
                await act()
            except Exception as error:  # noqa: BLE001  (whatever it is, the server has to hear of it)
                await send({"type": f"{step}.failed", "message": discreet(str(error) or repr(error))})
                return
            await send({"type": f"{step}.complete"})
            if step == "lifespan.shutdown":
                return
