"""A flow as a Mermaid state diagram: https://mermaid.js.org/syntax/stateDiagram.html."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.flows.model import FlowState, Timeout, Transition, press_trigger, transitions_of

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow


def draw(flow: "Flow") -> str:
    """Ids are numbers and names are labels, so that no name is read as a word of Mermaid's language."""
    ids = {state.name: f"s{number}" for number, state in enumerate(flow.states)}
    lines = ["stateDiagram-v2", f"    %% {_label(flow.name)}"]
    lines += [f'    state "{_label(_titled(state))}" as {ids[state.name]}' for state in flow.states]
    if flow.initial in ids:
        lines.append(f"    [*] --> {ids[flow.initial]}")
    for state in flow.states:
        lines += [f"    {ids[state.name]} --> {line}" for line in _arrows(flow, state, ids)]
    return "\n".join([*lines, *_notes(flow, ids)]) + "\n"


def _titled(state: FlowState) -> str:
    parts = [state.name]
    if state.run is not None:
        parts.append(f"runs {state.run.name}")
    if state.poll is not None:
        parts.append(f"polls {state.poll.name} by {state.poll.key}")
    return ", ".join(parts)


def _arrows(flow: "Flow", state: FlowState, ids: dict[str, str]) -> Iterator[str]:
    if state.final:
        yield "[*]"
    presses = {press_trigger(button): button for button in state.all_buttons() if button.to is not None}
    for transition in transitions_of(state):
        target = ids.get(transition.to or state.name)
        if target is None:
            continue
        button = presses.get(transition.trigger)
        if button is not None:
            label, guard = f"[{flow.text(button.text)}]", button.guard
        else:
            label, guard = _transition_label(transition, state.timeout), transition.guard
        yield f"{target} : {_label(label + (f' if {guard}' if guard else ''))}"
    if state.timeout is not None and state.timeout.say is not None:
        yield f"{ids[state.name]} : {_label(_nudge(state.timeout))}"


def _transition_label(transition: Transition, timeout: Timeout | None) -> str:
    if transition.trigger == "timeout" and timeout is not None:
        nudges = timeout.times if timeout.say is not None else 0
        return f"after {timeout.seconds * (nudges + 1):g} s"
    return transition.trigger.replace(":", " ", 1)


def _nudge(timeout: Timeout) -> str:
    often = "" if timeout.times == 1 else f", {timeout.times} times"
    return f"nudge after {timeout.seconds:g} s{often}"


def _notes(flow: "Flow", ids: dict[str, str]) -> Iterator[str]:
    """Transitions that every state has would cover the picture, so they are in a note."""
    commands = [f"{command} leads to {_label(target)}" for command, target in flow.commands.items()]
    if flow.lifetime is not None:
        commands.append(f"ends after {flow.lifetime:g} s")
    if commands and flow.initial in ids:
        yield f"    note right of {ids[flow.initial]}"
        yield f"        everywhere: {', '.join(commands)}"
        yield "    end note"


def _label(text: str) -> str:
    """Write characters that Mermaid would read as its own as entities."""
    return "".join(_letter(letter) for letter in " ".join(text.split()))


def _letter(letter: str) -> str:
    plain = letter.isalnum() or letter in " _-/,.()[]!?'+=*@"
    return letter if plain else f"#{ord(letter)};"
