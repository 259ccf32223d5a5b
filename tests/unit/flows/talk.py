"""A shop's conversation, and somebody who talks to it."""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from tidegate.flows import Flow, FlowBuilder, FlowStep, Session, step
from tidegate.flows.effects import AnswerPress, Effect, SayText, ShownButton
from tidegate.flows.events import (
    Begin,
    ButtonPress,
    Command,
    FlowEvent,
    Polled,
    Text,
    TimedOut,
    WorkDone,
    WorkFailed,
)

NOW = 1_800_000_000.0
E = TypeVar("E", bound=Effect)


def shop() -> FlowBuilder:
    """Everything that a flow can have."""
    flow = FlowBuilder("shop", lifetime=86_400, given=("name",))
    flow.command("/start", to="start").command("/cancel", to="cancelled")
    (
        flow.state("start", say="Hello {name}, what would you like?")
        .button("Tea", to="email", save="item", value="tea")
        .button("Coffee", to="email", save="item", value="coffee", guard="is_open", beside=True)
        .button("Help", trigger="help")
        .on("button:help", say="Tea is hot.")
        .on("contact", to="email", save=("item",))
    )
    (
        flow.state("email", say="Your e-mail for the {item}?", otherwise="That is no e-mail address.")
        .on("text", to="ordering", guard="has_at", save="email", say="Thank you.")
        .on("/skip", to="ordering")
    )
    flow.state("ordering").run("create_order", done="waiting", failed="sorry", save=("order_id",))
    (
        flow.state("waiting", say="Please pay order {order_id}.")
        .button("Pay", url="https://pay.example/{order_id}")
        .button("Cancel", to="cancelled")
        .poll("payment", key="order_id", met="paid", gone="sorry")
        .timeout(900, say="Still there?", times=2, to="cancelled")
        .on("signal:refused", to="sorry", save="why")
    )
    flow.final("paid", say="Order {order_id} is paid.")
    flow.final("sorry", say="Sorry. {why}")
    flow.final("cancelled", say="Cancelled.")
    flow.guard(is_open)
    flow.guard(has_at)
    return flow


def is_open(data: Mapping[str, Any], event: FlowEvent) -> bool:  # noqa: ARG001  (a guard)
    return data.get("name") != "Nightowl"


def has_at(data: Mapping[str, Any], event: FlowEvent) -> bool:  # noqa: ARG001  (a guard)
    return isinstance(event, Text) and "@" in event.text


class Talk:
    """One person's session. Each event is a new one, `after` seconds later."""

    def __init__(self, flow: Flow | None = None) -> None:
        self.flow = flow or shop().build()
        self.session: Session | None = None
        self.now = NOW
        self.buttons: list[ShownButton] = []
        self.rows: tuple[tuple[ShownButton, ...], ...] = ()  # of the last message
        self.said = ""
        self.language: str | None = None
        self.deleted: list[int] = []  # messages
        self._events = 0

    @property
    def live(self) -> Session:
        assert self.session is not None
        return self.session

    def begin(self, **data: object) -> tuple[Effect, ...]:
        return self.take(Begin(data, **self.cause()))

    def command(self, name: str, after: float = 1.0) -> tuple[Effect, ...]:
        return self.take(Command(name, **self.cause(after)))

    def write(self, text: str, after: float = 1.0) -> tuple[Effect, ...]:
        return self.take(Text(text, **self.cause(after)))

    def press(self, text: str) -> tuple[Effect, ...]:
        """The button that was shown last with this text."""
        data = next(button.data for button in reversed(self.buttons) if button.text == text)
        return self.take(ButtonPress(data or "", query="q", **self.cause()))

    def finish_work(self, result: object, visit: int | None = None) -> tuple[Effect, ...]:
        return self.take(WorkDone("create_order", visit or self.live.visit, result, **self.cause()))

    def fail_work(self, reason: str) -> tuple[Effect, ...]:
        return self.take(WorkFailed("create_order", self.live.visit, reason, **self.cause()))

    def polled(self, key: str, kind: Literal["met", "gone", "reversed"] = "met") -> tuple[Effect, ...]:
        return self.take(Polled("payment", key, kind, **self.cause()))

    def time_out(self, after: float) -> tuple[Effect, ...]:
        return self.take(TimedOut(self.live.visit, **self.cause(after)))

    def cause(self, after: float = 1.0) -> dict[str, Any]:
        self.now += after
        self._events += 1
        spoken = {} if self.language is None else {"language": self.language}
        return {"id": f"e{self._events}", "at": self.now, **spoken}

    def take(self, event: FlowEvent) -> tuple[Effect, ...]:
        done: FlowStep = step(self.flow, self.session, event)
        self.session = done.session.done() if done.session else None
        for say in only(done.effects, SayText):
            self.said, self.rows = say.text, say.buttons
            self.buttons += [button for row in say.buttons for button in row]
        return done.effects

    def wait_for_payment(self) -> None:
        self.begin(name="Ann")
        self.press("Tea")
        self.write("ann@example.org")
        self.finish_work({"order_id": 7})


def only(effects: tuple[Effect, ...], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def words(effects: tuple[Effect, ...]) -> list[str]:
    """What a person reads."""
    return [effect.text for effect in effects if isinstance(effect, SayText | AnswerPress) and effect.text]
