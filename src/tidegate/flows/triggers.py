"""What takes a session on, in words: `text`, `/cancel`, `button:buy`, `signal:paid`, `met:payment`."""

import re
from typing import Final

from tidegate.flows.model import Button, State, Transition

CONTENTS: Final = frozenset(
    ("animation", "audio", "contact", "document", "location", "photo", "sticker", "video", "voice", "other")
)
TEXT: Final = "text"
TIMEOUT: Final = "timeout"
OUTCOMES: Final = ("met", "gone", "reversed", "done", "failed")
_NAMED = re.compile(r"(button|signal|met|gone|reversed|done|failed):(.+)", re.DOTALL)
_COMMAND = re.compile(r"/[A-Za-z0-9_]{1,32}")  # as Telegram has them


def kind_of(trigger: str) -> str | None:
    """`command`, `text`, `content`, `timeout`, or the word before the colon. None: no such trigger."""
    if is_command(trigger):
        return "command"
    if trigger in {TEXT, TIMEOUT}:
        return trigger
    if trigger in CONTENTS:
        return "content"
    named = _NAMED.fullmatch(trigger)
    return named[1] if named else None


def name_in(trigger: str) -> str:
    """What stands after the colon."""
    return trigger.partition(":")[2]


def is_command(trigger: str) -> bool:
    return _COMMAND.fullmatch(trigger) is not None


def pressing(button: Button) -> str:
    """What a press of it triggers."""
    return f"button#{button.code}" if button.trigger is None else f"button:{button.trigger}"


def ways_of(state: State) -> list[Transition]:
    """Every way out of a state, in the order they are tried: its own first, then those it has by itself,
    unless one of its own is always taken instead.
    """
    if state.final:
        return []
    certain = {way.trigger for way in state.on if way.guard is None}
    outcomes = (way for way in _by_outcomes(state) if way.trigger not in certain)
    return [*state.on, *_by_buttons(state), *outcomes]


def _by_buttons(state: State) -> list[Transition]:
    """The guard of a button is its own: it is asked before any way is looked for. Two that mean the same
    are one.
    """
    plain = {button.code: button for button in state.all_buttons() if button.to is not None}
    return [Transition(pressing(button), to=button.to, save=button.save or ()) for button in plain.values()]


def _by_outcomes(state: State) -> list[Transition]:
    ways: list[Transition] = []
    if (poll := state.poll) is not None:
        ends = (("met", poll.met), ("gone", poll.gone), ("reversed", poll.reversed))
        ways += [Transition(f"{kind}:{poll.name}", to=to) for kind, to in ends if to is not None]
    if (work := state.run) is not None:
        ways += [
            Transition(f"done:{work.name}", to=work.done, save=work.save),
            Transition(f"failed:{work.name}", to=work.failed),
        ]
    if state.timeout is not None and state.timeout.to is not None:
        ways.append(Transition(TIMEOUT, to=state.timeout.to))
    return ways
