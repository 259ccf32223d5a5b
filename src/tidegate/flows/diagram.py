"""A flow as a Mermaid state diagram: https://mermaid.js.org/syntax/stateDiagram.html."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.flows.model import Button, FlowState, Key, Timeout, Transition, press_trigger, transitions_of

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow


def draw(flow: "Flow") -> str:
    """Ids are numbers and names are labels, so that no name is read as a word of Mermaid's language."""
    flow = flow.flat
    ids = {state.name: f"s{number}" for number, state in enumerate(flow.states)}
    lines = ["stateDiagram-v2", f"    %% {_label(flow.name)}"]
    lines += [
        f'    state "{_label(", ".join(titles_of(state)))}" as {ids[state.name]}' for state in flow.states
    ]
    if flow.initial in ids:
        lines.append(f"    [*] --> {ids[flow.initial]}")
    for state in flow.states:
        lines += [f"    {ids[state.name]} --> {line}" for line in _arrows(flow, state, ids)]
    return "\n".join([*lines, *_notes(flow, ids)]) + "\n"


def _arrows(flow: "Flow", state: FlowState, ids: dict[str, str]) -> Iterator[str]:
    if state.final:
        yield "[*]"
    for target, text in transition_texts(flow, state):
        if target in ids:
            yield f"{ids[target]} : {_label(text)}"


def _notes(flow: "Flow", ids: dict[str, str]) -> Iterator[str]:
    """Transitions that every state has would cover the picture, so they are in a note."""
    notes = notes_of(flow)
    if notes and flow.initial in ids:
        yield f"    note right of {ids[flow.initial]}"
        yield f"        everywhere: {', '.join(map(_label, notes))}"
        yield "    end note"


def titles_of(state: FlowState) -> list[str]:
    """Return the name of a state, and what it does while a session is in it."""
    parts = [state.name]
    if state.media:
        shown = "album" if state.is_album else state.media[0].kind
        parts.append(f"shows {'an' if shown.startswith('a') else 'a'} {shown}")
    if state.choices is not None:
        parts.append(f"lists {state.choices.field}")
    if state.run is not None:
        parts.append(f"runs {state.run.name}")
    if state.poll is not None:
        parts.append(f"polls {state.poll.name} by {state.poll.key}")
    return parts


def transition_texts(flow: "Flow", state: FlowState) -> Iterator[tuple[str, str]]:
    """Yield each transition of a state as its target and its label."""
    if (nested := _nested_transitions(flow, state)) is not None:
        yield from nested
        return
    presses: dict[str, Button | Key] = {key.trigger: key for key in state.all_keys()}
    presses |= {press_trigger(button): button for button in state.all_buttons() if button.to is not None}
    for transition in transitions_of(state):
        button = presses.get(transition.trigger)
        if button is not None:
            label, guard = f"[{flow.text(button.text)}]", button.guard
        else:
            label, guard = _transition_label(transition, state.timeout), transition.guard
        yield transition.to or state.name, label + (f" if {guard}" if guard else "")
    if state.timeout is not None and state.timeout.say is not None:
        yield state.name, _nudge(state.timeout)


def _nested_transitions(flow: "Flow", state: FlowState) -> list[tuple[str, str]] | None:
    """Of a state that calls a flow, or in which a called flow ends. None: it is neither."""
    nesting = flow.nesting
    if nesting is not None and state.call is not None and state.name in nesting.entries:
        return [(nesting.entries[state.name], f"calls {state.call.flow}")]
    if nesting is None or (inner := nesting.final_of(state.name)) is None:
        return None
    followers = flow.transitions[inner.caller].get(f"ended:{inner.state}", ())
    return [
        (one.to, "ends" + (f" if {one.guard}" if one.guard else ""))
        for one in followers
        if one.to is not None
    ]


def notes_of(flow: "Flow") -> list[str]:
    """Return what is so in every state."""
    notes = [f"{command} leads to {target}" for command, target in flow.commands.items()]
    return notes if flow.lifetime is None else [*notes, f"ends after {flow.lifetime:g} s"]


def _transition_label(transition: Transition, timeout: Timeout | None) -> str:
    if transition.trigger == "timeout" and timeout is not None:
        nudges = timeout.times if timeout.say is not None else 0
        return f"after {timeout.seconds * (nudges + 1):g} s"
    return transition.trigger.replace(":", " ", 1)


def _nudge(timeout: Timeout) -> str:
    often = "" if timeout.times == 1 else f", {timeout.times} times"
    return f"nudge after {timeout.seconds:g} s{often}"


def _label(text: str) -> str:
    """Write characters that Mermaid would read as its own as entities."""
    return "".join(_letter(letter) for letter in " ".join(text.split()))


def _letter(letter: str) -> str:
    plain = letter.isalnum() or letter in " _-/,.()[]!?'+=*@"
    return letter if plain else f"#{ord(letter)};"
