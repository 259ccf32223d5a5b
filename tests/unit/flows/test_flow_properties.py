"""Whatever is declared and whatever happens: the same events lead to the same end, and nowhere else."""

from collections.abc import Sequence
from random import Random
from typing import Any, Literal, NamedTuple, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from tidegate.flows import (
    Button,
    Choices,
    Flow,
    FlowStep,
    Key,
    Media,
    Poll,
    Session,
    State,
    Timeout,
    Transition,
    Work,
    step,
)
from tidegate.flows.declaration import flow_of, plain_of
from tidegate.flows.effects import ClearTimer, Effect, EndSession, SayText, SetTimer, Subscribe, Unsubscribe
from tidegate.flows.events import (
    Begin,
    ButtonPress,
    Command,
    Content,
    Expired,
    FlowEvent,
    Polled,
    Signal,
    Text,
    TimedOut,
    WorkDone,
    WorkFailed,
)
from tidegate.flows.model import Guard
from tidegate.flows.session import read_session
from tidegate.flows.session_update import subscription, upkeep

T = TypeVar("T")
GUARDS: dict[str, Guard] = {"often": lambda data, event: len(event.id) % 2 == 0 or "note" in data}


def a_state(number: int, names: list[str], dice: Random) -> State:
    """It leads to the next one, so that all can be reached, and anywhere else."""

    def anywhere() -> str:
        return dice.choice(names)

    def perhaps(value: T) -> T | None:
        return dice.choice([value, None])

    trigger = dice.choice(["text", "/go", "contact", "signal:ping"])
    guarded = [Transition(trigger, perhaps(anywhere()), "often", say="On the way {note}")]
    on = guarded * dice.randint(0, 1) + [
        Transition(trigger, perhaps(anywhere()), save="note" if dice.random() < 0.5 else ())
    ]
    extra = [Button(f"To {to}", to=to, save="note") for to in {anywhere(), anywhere()}]
    rows = ((Button("Next", to=names[number + 1]),), tuple(extra))
    choices = perhaps(Choices("items", anywhere(), save="note", page=dice.randint(1, 3)))
    keys = dice.random() < 0.25
    return State(
        f"s{number}",
        say=perhaps("Hello {key}") if not extra else "Hello {key}",
        buttons=() if keys else rows,
        keys=((Key("Next", names[number + 1]), Key("Free")),) if keys else (),
        choices=None if keys else choices,
        media=perhaps((Media("photo", id="{key}"),)) or (),
        in_place=None if keys else dice.choice([True, None]),
        on=tuple(on),
        poll=perhaps(Poll("p", "key", anywhere(), perhaps(anywhere()))),
        timeout=perhaps(Timeout(10, perhaps(anywhere()), "Well?", dice.randint(1, 2))),
        run=perhaps(Work("w", anywhere(), anywhere(), "note")),
    )


def a_flow(seed: int) -> Flow:
    """Drawn by dice of our own: a strategy would take longer to draw than all else together."""
    dice = Random(seed)
    names = [*(f"s{number}" for number in range(dice.randint(1, 4))), "end"]
    states = [a_state(number, names, dice) for number in range(len(names) - 1)]
    return Flow(
        name="any",
        initial="s0",
        states=(*states, State("end", say="Bye", final=True)),
        commands={"/start": "s0", "/end": "end"},
        lifetime=dice.choice([None, 35.0]),
        in_place=dice.random() < 0.5,
        given=("key", "note", "items"),
        guards=GUARDS,
    )


FLOWS = st.integers(0, 1_000_000).map(a_flow)


class Happening(NamedTuple):
    """What happens, whoever it happens to: numbers choose among what there is by then."""

    kind: str
    after: float
    number: int


KINDS = [
    "begin",
    "command",
    "text",
    "content",
    "press",
    "signal",
    "polled",
    "timer",
    "done",
    "failed",
    "look",
]
OUTCOMES: Sequence[Literal["met", "gone", "reversed"]] = ["met", "gone", "reversed"]
AFTER = [0.0, 1.0, 10.0, 40.0]


def a_happening(number: int) -> Happening:
    number, kind = divmod(number, len(KINDS))
    number, after = divmod(number, len(AFTER))
    return Happening(KINDS[kind], AFTER[after], number)


ALL = [a_happening(number) for number in range(len(KINDS) * len(AFTER) * 6)]
HAPPENINGS = st.lists(st.sampled_from(ALL), min_size=1, max_size=25)


class Player:
    """Makes events of happenings, and does what effects say."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.session: Session | None = None
        self.events: list[FlowEvent] = []
        self.steps: list[FlowStep] = []
        self.subscribed: set[tuple[str, str]] = set()
        self.timer: SetTimer | None = None
        self._presses = [""]

    def play(self, happening: Happening, at: float) -> FlowStep:
        event = self._event(happening, at)
        self.events.append(event)
        if isinstance(event, TimedOut) and self.timer is not None and event.visit == self.timer.visit:
            self.timer = None  # it rings once
        done = step(self.flow, self.session, event)
        self.steps.append(done)
        for effect in done.effects:
            self._do(effect)
        self.session = done.session
        return done

    def _event(self, happening: Happening, at: float) -> FlowEvent:
        number = happening.number
        cause: dict[str, Any] = {"id": "e" * (len(self.events) + 1), "at": at}
        data: dict[str, Any] = {"key": f"k{number % 2}", "items": [f"i{one}" for one in range(number)]}
        place = (number % 3 or None, number % 2 == 0)
        visit = (self.session.visit if self.session else 0) - number // 4
        makers: dict[str, Any] = {
            "begin": lambda: Begin(data, **cause),
            "command": lambda: Command(["/start", "/end", "/go", "/other"][number % 4], data=data, **cause),
            "text": lambda: Text(["Next", "Free", "{key}"][number % 3], **cause),
            "content": lambda: Content("contact", {"x": [number]}, **cause),
            "press": lambda: ButtonPress(
                self._presses[-1 - number % len(self._presses)], "q", *place, **cause
            ),
            "signal": lambda: Signal("ping", number, **cause),
            "polled": lambda: Polled("p", data["key"], OUTCOMES[number // 2], **cause),
            "timer": lambda: TimedOut(visit, **cause),
            "done": lambda: WorkDone("w", visit, (number,), **cause),
            "failed": lambda: WorkFailed("w", visit, "why", **cause),
            "look": lambda: Expired(**cause),
        }
        made: FlowEvent = makers[happening.kind]()
        return made

    def _do(self, effect: Effect) -> None:
        match effect:
            case SayText():
                self._presses += [button.data or "" for row in effect.buttons for button in row]
            case Subscribe():
                self.subscribed.add((effect.poll, effect.key))
            case Unsubscribe():
                self.subscribed.remove((effect.poll, effect.key))
            case SetTimer():
                self.timer = effect
            case ClearTimer():
                self.timer = None
            case _:
                pass


def played(flow: Flow, happenings: list[Happening]) -> Player:
    player, at = Player(flow), 1_000.0
    player.play(Happening("begin", 0.0, 0), at)
    for happening in happenings:
        at += happening.after
        player.play(happening, at)
    return player


def begins(event: FlowEvent) -> bool:
    return isinstance(event, Begin) or (isinstance(event, Command) and event.name == "/start")


@given(FLOWS)
def test_such_flows_are_sound_and_the_same_as_plain_data(flow: Flow) -> None:
    assert flow.validate() == []
    assert flow_of(plain_of(flow), guards=GUARDS) == flow


@given(FLOWS, HAPPENINGS)
def test_a_session_is_never_in_a_state_that_is_not_declared(flow: Flow, happenings: list[Happening]) -> None:
    for done in played(flow, happenings).steps:
        assert done.session is not None
        assert done.session.state in flow.by_name


@given(FLOWS, HAPPENINGS)
def test_the_same_events_give_the_same_effects_also_over_restarts(
    flow: Flow, happenings: list[Happening]
) -> None:
    player = played(flow, happenings)
    session: Session | None = None
    for event, known in zip(player.events, player.steps, strict=True):
        done = step(flow, session, event)
        assert done == known
        assert done.session is not None
        session = read_session(done.session.to_json())
        assert session == done.session


@given(FLOWS, HAPPENINGS)
def test_an_event_that_comes_again_changes_nothing(flow: Flow, happenings: list[Happening]) -> None:
    player = played(flow, happenings)
    for event, known in zip(player.events, player.steps, strict=True):
        again = step(flow, known.session, event)
        if isinstance(event, TimedOut) and [type(effect) for effect in again.effects] == [SetTimer]:
            continue  # it rings too early, again and again
        assert again.session == known.session
        assert again.effects == ()


@given(FLOWS, HAPPENINGS)
def test_after_its_end_a_session_moves_only_to_begin_anew(flow: Flow, happenings: list[Happening]) -> None:
    player = played(flow, happenings)
    for before, event, after in zip(player.steps, player.events[1:], player.steps[1:], strict=False):
        assert before.session is not None
        assert after.session is not None
        if not before.session.ended or begins(event):
            continue
        assert (after.session.state, after.session.visit) == (before.session.state, before.session.visit)
        assert after.session.ended
        assert not any(
            isinstance(effect, SayText | Subscribe | SetTimer | EndSession) for effect in after.effects
        )


@given(FLOWS, HAPPENINGS)
def test_whoever_does_the_effects_has_going_on_what_the_session_needs(
    flow: Flow, happenings: list[Happening]
) -> None:
    player, at = Player(flow), 1_000.0
    for happening in [Happening("begin", 0.0, 0), *happenings]:
        at += happening.after
        player.play(happening, at)
        assert player.session is not None
        held = subscription(flow, player.session)
        assert player.subscribed == ({(held.poll, held.key)} if held else set())
        needed = [effect for effect in upkeep(flow, player.session) if isinstance(effect, SetTimer)]
        assert needed == ([player.timer] if player.timer else [])
