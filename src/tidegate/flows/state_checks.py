"""What can be wrong with one state by itself: its triggers, times, and the names it calls."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from tidegate.flows.model import State, Transition
from tidegate.flows.problems import Problem
from tidegate.flows.triggers import CONTENTS, OUTCOMES, kind_of, name_in, ways_of

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow

_FLOW_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


def check_names(flow: "Flow") -> Iterator[Problem]:
    """The flow's own: the name stands in each button, where there is room for 64 bytes."""
    if not _FLOW_NAME.fullmatch(flow.name):
        text = f"the name {flow.name!r} cannot be used: take up to 32 letters, digits, _ and -"
        yield Problem("bad_name", None, text)
    for name, times in Counter(state.name for state in flow.states).items():
        if times > 1:
            yield Problem("bad_name", name, f"{times} states have this name: give each its own")
        if not name.strip():
            yield Problem("bad_name", name, "a state has no name: give it one")
    for command in flow.commands:
        if kind_of(command) != "command":
            text = f"{command!r} is no command: write a slash, then letters, digits and _, such as /cancel"
            yield Problem("bad_trigger", None, text)
    for command in flow.arguments:
        if command not in flow.commands:
            text = f"{command} is none of the commands, so its argument is never kept: add it to them"
            yield Problem("bad_trigger", None, text)
    if flow.lifetime is not None and not _is_time(flow.lifetime):
        text = f"the lifetime is {flow.lifetime}: give seconds above 0, or None"
        yield Problem("bad_time", None, text)


def check_triggers(state: State) -> Iterator[Problem]:
    if state.final and (state.on or state.poll or state.timeout or state.run or _has_ways(state)):
        text = "a session ends here, so nothing can follow: take out what does, or final"
        yield Problem("final_goes_on", state.name, text)
    for way in state.on:
        if (wrong := _wrong_trigger(state, way)) is not None:
            yield Problem("bad_trigger", state.name, wrong)
    certain: set[str] = set()
    for way in ways_of(state):
        if way.trigger in certain:
            text = f"{_named(way)} has a way after one without a guard, so it is never taken: guard the first"
            yield Problem("ambiguous", state.name, text)
        elif way.guard is None:
            certain.add(way.trigger)


def check_times(state: State) -> Iterator[Problem]:
    timeout = state.timeout
    if timeout is None:
        return
    if not _is_time(timeout.seconds):
        yield Problem("bad_time", state.name, f"its timeout is {timeout.seconds}: give seconds above 0")
    if timeout.say is not None and timeout.times < 1:
        text = f"its timeout speaks {timeout.times} times: give 1 or more"
        yield Problem("bad_time", state.name, text)
    if timeout.say is None and not any(way.trigger == "timeout" for way in ways_of(state)):
        text = "its timeout does nothing: give it say, or a state to go to"
        yield Problem("bad_time", state.name, text)


def check_outcomes(
    flow: "Flow", state: State, *, works: Collection[str] | None, polls: Collection[str] | None
) -> Iterator[Problem]:
    """Names of functions that must be given to whoever runs the flow."""
    for guard in state.guards():
        if guard not in flow.guards:
            text = f"there is no guard {guard}: give the flow a function of this name"
            yield Problem("unknown_guard", state.name, text)
    if state.run is not None and works is not None and state.run.name not in works:
        yield Problem("unknown_work", state.name, f"there is no work {state.run.name}: {_known(works)}")
    if state.poll is not None and polls is not None and state.poll.name not in polls:
        yield Problem("unknown_poll", state.name, f"there is no poll {state.poll.name}: {_known(polls)}")


def _wrong_trigger(state: State, way: Transition) -> str | None:
    kind, name = kind_of(way.trigger), name_in(way.trigger)
    if kind is None:
        outcomes, contents = ", ".join(f"{word}:NAME" for word in OUTCOMES), ", ".join(sorted(CONTENTS))
        known = f"text, a /command, button:NAME, signal:NAME, timeout, {outcomes}, or one of {contents}"
        return f"{way.trigger!r} is no trigger: write {known}"
    if not _can_come(state, kind, name):
        return f"{way.trigger} never comes in this state: give it what it comes from, or take out the way"
    if kind in {"text", "command", "button"} and not isinstance(way.save, str) and way.save:
        return f"{way.trigger} brings one value, and save names fields of a table: give one name"
    return None


def _can_come(state: State, kind: str, name: str) -> bool:
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


def _has_ways(state: State) -> bool:
    return any(button.url is None for button in state.all_buttons())


def _named(way: Transition) -> str:
    return "a button" if way.trigger.startswith("button#") else way.trigger


def _known(names: Collection[str]) -> str:
    return f"there are {', '.join(sorted(names))}" if names else "none are given"


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds > 0
