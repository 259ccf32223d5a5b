"""What can be wrong with what a flow says: no translation, a field nobody saves, a long button."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from tidegate.flows.filling import fields_in
from tidegate.flows.model import Button, State
from tidegate.flows.problems import Problem

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow

LONGEST_TEXT: Final = 4_096  # https://core.telegram.org/bots/api#sendmessage
LONGEST_BUTTON: Final = 64  # characters; more is cut on any screen
WIDEST_ROW, MOST_BUTTONS = 8, 100  # Telegram cuts or refuses more
_KEY = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*")


def check_flow_texts(flow: "Flow") -> Iterator[Problem]:
    for said in (flow.otherwise, flow.expired, flow.stale):
        yield from _translated(flow, None, said)


def check_texts(flow: "Flow", state: State, saved: Collection[str]) -> Iterator[Problem]:
    for said in dict.fromkeys(_said_in(state)):
        yield from _translated(flow, state.name, said)
        for text in _versions(flow, said):
            if len(text) > LONGEST_TEXT:
                shown = f"{text[:20]!r}… has {len(text):,} characters"
                yield Problem("too_long", state.name, f"{shown}: Telegram takes {LONGEST_TEXT:,}")
        for field in dict.fromkeys(name for text in _versions(flow, said) for name in fields_in(text)):
            if field not in saved:
                text = f"{{{field}}} is never saved: save it on a way, or list it in given ({{{{ is a brace)"
                yield Problem("missing_field", state.name, text)


def check_buttons(flow: "Flow", state: State) -> Iterator[Problem]:
    buttons = state.all_buttons()
    if buttons and state.say is None:
        yield Problem(
            "bad_button", state.name, "it has buttons and says nothing: they need a message to stand under"
        )
    for text, times in Counter(button.text for button in buttons).items():
        if times > 1:
            yield Problem(
                "ambiguous", state.name, f"{times} buttons read {text!r}: give each a text of its own"
            )
    triggers = {way.trigger for way in state.on}
    for button in buttons:
        yield from _button(flow, state, button, triggers)
    if len(buttons) > MOST_BUTTONS or any(len(row) > WIDEST_ROW for row in state.buttons):
        text = f"a row has at most {WIDEST_ROW} buttons, a message {MOST_BUTTONS}: use more rows or states"
        yield Problem("too_long", state.name, text)


def _button(flow: "Flow", state: State, button: Button, triggers: Collection[str]) -> Iterator[Problem]:
    if [button.to, button.trigger, button.url].count(None) != 2:  # noqa: PLR2004  (all but one)
        text = f"the button {button.text!r} needs one of to, trigger and url"
        yield Problem("bad_button", state.name, text)
    if button.trigger is not None and f"button:{button.trigger}" not in triggers:
        text = f"no way has the trigger button:{button.trigger}: add one to the state's on"
        yield Problem("bad_button", state.name, text)
    for text in _versions(flow, button.text):
        if not text.strip():
            yield Problem("bad_button", state.name, "a button has no text: give it one")
        if len(text) > LONGEST_BUTTON:
            shown = f"the button {text[:20]!r}… has {len(text)} characters"
            yield Problem("too_long", state.name, f"{shown}: give it at most {LONGEST_BUTTON}")


def _said_in(state: State) -> Iterator[str]:
    nudge = state.timeout.say if state.timeout is not None else None
    for text in (state.say, state.otherwise, nudge, *(way.say for way in state.on)):
        if text:
            yield text
    for button in state.all_buttons():
        yield button.text
        if button.url is not None:
            yield button.url


def _versions(flow: "Flow", said: str) -> Iterator[str]:
    """In each language."""
    if flow.texts is None or not flow.texts.has(said):
        yield said
    else:
        yield from (texts[said] for texts in flow.texts.languages.values() if said in texts)


def _translated(flow: "Flow", state: str | None, said: str) -> Iterator[Problem]:
    texts = flow.texts
    if texts is None:
        return
    if texts.has(said):
        for language in texts.lacking(said):
            text = f"{said} has no text in {language}: add it to [{language}] of the texts"
            yield Problem("missing_text", state, text)
    elif _KEY.fullmatch(said):
        yield Problem("missing_text", state, f"{said} is in no language of the texts: add it")
