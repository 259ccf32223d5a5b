"""Finds everything that is wrong with a flow before it runs."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tidegate.flows.graph import Graph
from tidegate.flows.model import (
    CONTENTS,
    OUTCOMES,
    Button,
    FlowState,
    Transition,
    transitions_of,
    trigger_kind,
    trigger_name,
)
from tidegate.templates import MAX_TEXT_LENGTH, fields_in, utf16_length

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow

MAX_ANSWER_LENGTH: Final = 200  # https://core.telegram.org/bots/api#answercallbackquery
MAX_BUTTON_LENGTH: Final = 64  # characters; more is cut on any screen
MAX_ROW_BUTTONS, MAX_BUTTONS = 8, 100  # Telegram cuts or refuses more
# A text that looks like a key: `welcome`, `Buttons.Buy`, `Hi_text`.
_KEY = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*|[A-Za-z][A-Za-z0-9]*(?:[._][A-Za-z0-9]+)+")
_URL = re.compile(r"(?:https?|tg)://\S|\{")  # the value of a field is not known here
_FLOW_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")

ProblemKind = Literal[
    "no_initial",
    "unreachable",
    "missing_target",
    "dead_end",
    "never_ends",
    "ambiguous",
    "bad_trigger",
    "bad_button",
    "bad_name",
    "bad_time",
    "final_goes_on",
    "missing_text",
    "missing_field",
    "poll_key",
    "unknown_guard",
    "unknown_work",
    "unknown_poll",
    "too_long",
]


class Problem(msgspec.Struct, frozen=True):
    """`state` is None for a problem of the flow itself. The text says what is wrong and what to do."""

    kind: ProblemKind
    state: str | None
    text: str

    def __str__(self) -> str:
        return self.text if self.state is None else f"{self.state}: {self.text}"


def problems_of(
    flow: "Flow", *, works: Collection[str] | None = None, polls: Collection[str] | None = None
) -> list[Problem]:
    """Return all problems, in the order of the states. Linear in the number of transitions."""
    graph = Graph(flow)
    saved = graph.saved_anywhere()
    found = [*_check_flow(flow, graph), *check_flow_texts(flow, saved)]
    for state in flow.states:
        found += check_triggers(state)
        found += check_times(state)
        found += check_outcomes(flow, state, works=works, polls=polls)
        found += check_buttons(flow, state)
        found += check_texts(flow, state, saved)
    return found


def _check_flow(flow: "Flow", graph: Graph) -> Iterator[Problem]:
    yield from check_names(flow)
    yield from _check_targets(flow)
    if flow.initial not in flow.by_name:
        text = f"the initial state {flow.initial} is not among the states: add it, or name another"
        yield Problem("no_initial", None, text)
        return
    reachable = graph.reachable()
    for state in flow.states:
        if state.name not in reachable:
            text = "nothing leads here: add a transition to it, or remove it"
            yield Problem("unreachable", state.name, text)
    yield from _check_ends(flow, graph)
    yield from _check_poll_keys(flow, graph)


def _check_targets(flow: "Flow") -> Iterator[Problem]:
    for command, target in flow.commands.items():
        if target not in flow.by_name:
            text = f"the command {command} leads to {target}, which is no state: add it, or name another"
            yield Problem("missing_target", None, text)
    for state in flow.states:
        targets = dict.fromkeys(
            transition.to for transition in transitions_of(state) if transition.to is not None
        )
        for target in (name for name in targets if name not in flow.by_name):
            text = f"a transition leads to {target}, which is no state: add it, or name another"
            yield Problem("missing_target", state.name, text)


def _check_ends(flow: "Flow", graph: Graph) -> Iterator[Problem]:
    can_end = graph.can_end()
    # An endless flow with a lifetime was meant so.
    endless = flow.lifetime is not None and not any(state.final for state in flow.states)
    anew = ", except to begin anew" if any(map(flow.begins_with, flow.commands)) else ""
    for state in flow.states:
        if flow.lifetime is not None and state.otherwise == "":
            continue  # silent until its lifetime is over: somebody else has taken over
        if not state.final and not graph.has_exit(state.name):
            text = f"no transition leads out of it{anew}: add one, or make it final"
            yield Problem("dead_end", state.name, text)
        elif state.name not in can_end and not endless:
            text = "no final state can be reached from here: add a transition to one, or a lifetime"
            yield Problem("never_ends", state.name, text)


def _check_poll_keys(flow: "Flow", graph: Graph) -> Iterator[Problem]:
    keys = {state.name: state.poll.key for state in flow.states if state.poll is not None}
    for name in graph.reached_without(keys):
        text = (
            f"it polls for {keys[name]}, which is not saved on every path to it:"
            " save it on each, or list it in given if a session has it from the beginning"
        )
        yield Problem("poll_key", name, text)


def check_names(flow: "Flow") -> Iterator[Problem]:
    """Check the flow's own names. Its name is in the data of each button, which has room for 64 bytes."""
    if not _FLOW_NAME.fullmatch(flow.name):
        text = f"the name {flow.name!r} cannot be used: take up to 32 letters, digits, _ and -"
        yield Problem("bad_name", None, text)
    for name, times in Counter(state.name for state in flow.states).items():
        if times > 1:
            yield Problem("bad_name", name, f"{times} states have this name: give each its own")
        if not name.strip():
            yield Problem("bad_name", name, "a state has no name: give it one")
    for command in flow.commands:
        if trigger_kind(command) != "command":
            text = f"{command!r} is no command: write a slash, then letters, digits and _, such as /cancel"
            yield Problem("bad_trigger", None, text)
    for command in flow.arguments:
        if command not in flow.commands:
            text = f"{command} is none of the commands, so its argument is never kept: add it to them"
            yield Problem("bad_trigger", None, text)
    if flow.lifetime is not None and not _is_time(flow.lifetime):
        text = f"the lifetime is {flow.lifetime}: give seconds above 0, or None"
        yield Problem("bad_time", None, text)


def check_triggers(state: FlowState) -> Iterator[Problem]:
    if state.final and (state.on or state.poll or state.timeout or state.run or _has_target_buttons(state)):
        text = "a session ends here, so nothing can follow: remove what does, or final"
        yield Problem("final_goes_on", state.name, text)
    for transition in state.on:
        if (wrong := _trigger_problem(state, transition)) is not None:
            yield Problem("bad_trigger", state.name, wrong)
    unguarded: set[str] = set()
    for transition in transitions_of(state):
        if transition.trigger in unguarded:
            label = _trigger_label(transition)
            text = (
                f"{label} has a transition after one without a guard, so it is never taken: guard the first"
            )
            yield Problem("ambiguous", state.name, text)
        elif transition.guard is None:
            unguarded.add(transition.trigger)


def check_times(state: FlowState) -> Iterator[Problem]:
    timeout = state.timeout
    if timeout is None:
        return
    if not _is_time(timeout.seconds):
        yield Problem("bad_time", state.name, f"its timeout is {timeout.seconds}: give seconds above 0")
    if timeout.say is not None and timeout.times < 1:
        text = f"its timeout speaks {timeout.times} times: give 1 or more"
        yield Problem("bad_time", state.name, text)
    if timeout.say is None and not any(
        transition.trigger == "timeout" for transition in transitions_of(state)
    ):
        text = "its timeout does nothing: give it say, or a state to go to"
        yield Problem("bad_time", state.name, text)


def check_outcomes(
    flow: "Flow", state: FlowState, *, works: Collection[str] | None, polls: Collection[str] | None
) -> Iterator[Problem]:
    """Check the names of guards, works and polls."""
    for guard in state.guards():
        if guard not in flow.guards:
            text = f"there is no guard {guard}: give the flow a function of this name"
            yield Problem("unknown_guard", state.name, text)
    if state.run is not None and works is not None and state.run.name not in works:
        yield Problem("unknown_work", state.name, f"there is no work {state.run.name}: {_known_names(works)}")
    if state.poll is not None and polls is not None and state.poll.name not in polls:
        yield Problem(
            "unknown_poll", state.name, f"there is no poll {state.poll.name}: {_known_names(polls)}"
        )


def _trigger_problem(state: FlowState, transition: Transition) -> str | None:
    kind, name = trigger_kind(transition.trigger), trigger_name(transition.trigger)
    if kind is None:
        outcomes, contents = ", ".join(f"{word}:NAME" for word in OUTCOMES), ", ".join(sorted(CONTENTS))
        known = f"text, a /command, button:NAME, signal:NAME, timeout, {outcomes}, or one of {contents}"
        return f"{transition.trigger!r} is no trigger: write {known}"
    if not _can_come(state, kind, name):
        return f"{transition.trigger} never comes in this state: give it a source, or remove it"
    if kind in {"text", "command", "button"} and not isinstance(transition.save, str) and transition.save:
        return f"{transition.trigger} brings one value, and save names fields of a table: give one name"
    return None


def _can_come(state: FlowState, kind: str, name: str) -> bool:
    match kind:
        case "button":
            return any(button.trigger == name for button in state.all_buttons())
        case "met" | "gone" | "reversed":
            return state.poll is not None and state.poll.name == name
        case "done" | "failed":
            return state.run is not None and state.run.name == name
        case "timeout":
            return state.timeout is not None
        case _:
            return True


def _has_target_buttons(state: FlowState) -> bool:
    return any(button.url is None for button in state.all_buttons())


def _trigger_label(transition: Transition) -> str:
    return "a button" if transition.trigger.startswith("button#") else transition.trigger


def _known_names(names: Collection[str]) -> str:
    return f"there are {', '.join(sorted(names))}" if names else "none are given"


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds > 0


def check_flow_texts(flow: "Flow", saved: Collection[str]) -> Iterator[Problem]:
    for said in dict.fromkeys((flow.otherwise, flow.expired)):
        yield from _check_text(flow, None, said, saved)
    yield from _check_text(flow, None, flow.stale, saved, MAX_ANSWER_LENGTH)


def check_texts(flow: "Flow", state: FlowState, saved: Collection[str]) -> Iterator[Problem]:
    for said in dict.fromkeys(_texts_of_state(state)):
        yield from _check_text(flow, state.name, said, saved)


def _check_text(
    flow: "Flow", state: str | None, said: str, saved: Collection[str], longest: int = MAX_TEXT_LENGTH
) -> Iterator[Problem]:
    yield from _check_translation(flow, state, said)
    for text in _translations(flow, said):
        if utf16_length(text) > longest:
            shown = f"{text[:20]!r}… has {utf16_length(text):,} characters"
            yield Problem("too_long", state, f"{shown}: Telegram takes {longest:,}")
    for field in dict.fromkeys(name for text in _translations(flow, said) for name in fields_in(text)):
        if field not in saved:
            text = (
                f"{{{field}}} is never saved: save it on a transition, or list it in given ({{{{ is a brace)"
            )
            yield Problem("missing_field", state, text)


def check_buttons(flow: "Flow", state: FlowState) -> Iterator[Problem]:
    buttons = state.all_buttons()
    if buttons and not all(text.strip() for text in _translations(flow, state.say or "")):
        yield Problem(
            "bad_button", state.name, "it has buttons and says nothing: they need a message to stand under"
        )
    yield from _check_equal_buttons(flow, state, buttons)
    triggers = {transition.trigger for transition in state.on}
    for button in buttons:
        yield from _check_button(flow, state, button, triggers)
    if len(buttons) > MAX_BUTTONS or any(len(row) > MAX_ROW_BUTTONS for row in state.buttons):
        text = (
            f"a row has at most {MAX_ROW_BUTTONS} buttons, a message {MAX_BUTTONS}: use more rows or states"
        )
        yield Problem("too_long", state.name, text)


def _check_equal_buttons(flow: "Flow", state: FlowState, buttons: Sequence[Button]) -> Iterator[Problem]:
    """Two buttons of a state must not read the same in any language."""
    languages = [None] if flow.texts is None else [*flow.texts.languages]
    readings = (Counter(flow.text(button.text, language) for button in buttons) for language in languages)
    for text, times in dict(item for reading in readings for item in reading.items() if item[1] > 1).items():
        yield Problem("ambiguous", state.name, f"{times} buttons read {text!r}: give each a text of its own")


def _check_button(
    flow: "Flow", state: FlowState, button: Button, triggers: Collection[str]
) -> Iterator[Problem]:
    if [button.to, button.trigger, button.url].count(None) != 2:  # noqa: PLR2004  (all but one)
        text = f"the button {button.text!r} needs one of to, trigger and url"
        yield Problem("bad_button", state.name, text)
    if button.trigger is not None and f"button:{button.trigger}" not in triggers:
        text = f"no transition has the trigger button:{button.trigger}: add one to the state's on"
        yield Problem("bad_button", state.name, text)
    if button.url is not None and not all(map(_URL.match, _translations(flow, button.url))):
        text = f"the button {button.text!r} leads to {button.url!r}: an address begins with https:// or tg://"
        yield Problem("bad_button", state.name, text)
    for text in _translations(flow, button.text):
        if not text.strip():
            yield Problem("bad_button", state.name, "a button has no text: give it one")
        if len(text) > MAX_BUTTON_LENGTH:
            shown = f"the button {text[:20]!r}… has {len(text)} characters"
            yield Problem("too_long", state.name, f"{shown}: give it at most {MAX_BUTTON_LENGTH}")


def _texts_of_state(state: FlowState) -> Iterator[str]:
    nudge = state.timeout.say if state.timeout is not None else None
    for text in (state.say, state.otherwise, nudge, *(transition.say for transition in state.on)):
        if text:
            yield text
    for button in state.all_buttons():
        yield button.text
        if button.url is not None:
            yield button.url


def _translations(flow: "Flow", said: str) -> Iterator[str]:
    """The text in each language."""
    if flow.texts is None or not flow.texts.has(said):
        yield said
    else:
        yield from (texts[said] for texts in flow.texts.languages.values() if said in texts)


def _check_translation(flow: "Flow", state: str | None, said: str) -> Iterator[Problem]:
    texts = flow.texts
    if texts is None:
        return
    if texts.has(said):
        for language in texts.lacking(said):
            text = f"{said} has no text in {language}: add it to [{language}] of the texts"
            yield Problem("missing_text", state, text)
    elif _KEY.fullmatch(said):
        yield Problem("missing_text", state, f"{said} is in no language of the texts: add it")
