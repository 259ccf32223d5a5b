"""What can be wrong with what a flow says: no translation, a field nobody saves, a long button."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tidegate.flows.filling import LONGEST_TEXT, fields_in, units
from tidegate.flows.model import Button, State
from tidegate.flows.problems import Problem

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow

LONGEST_ANSWER: Final = 200  # https://core.telegram.org/bots/api#answercallbackquery
LONGEST_BUTTON: Final = 64  # characters; more is cut on any screen
WIDEST_ROW, MOST_BUTTONS = 8, 100  # Telegram cuts or refuses more
# A word in small letters, or several that no sentence would join so: `welcome`, `Buttons.Buy`, `Hi_text`.
_KEY = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*|[A-Za-z][A-Za-z0-9]*(?:[._][A-Za-z0-9]+)+")
_ADDRESS = re.compile(r"(?:https?|tg)://\S|\{")  # what a field brings is not known here


def check_flow_texts(flow: "Flow", saved: Collection[str]) -> Iterator[Problem]:
    for said in dict.fromkeys((flow.otherwise, flow.expired)):
        yield from _said(flow, None, said, saved)
    yield from _said(flow, None, flow.stale, saved, LONGEST_ANSWER)


def check_texts(flow: "Flow", state: State, saved: Collection[str]) -> Iterator[Problem]:
    for said in dict.fromkeys(_said_in(state)):
        yield from _said(flow, state.name, said, saved)


def _said(
    flow: "Flow", state: str | None, said: str, saved: Collection[str], longest: int = LONGEST_TEXT
) -> Iterator[Problem]:
    yield from _translated(flow, state, said)
    for text in _versions(flow, said):
        if units(text) > longest:
            shown = f"{text[:20]!r}… has {units(text):,} characters"
            yield Problem("too_long", state, f"{shown}: Telegram takes {longest:,}")
    for field in dict.fromkeys(name for text in _versions(flow, said) for name in fields_in(text)):
        if field not in saved:
            text = f"{{{field}}} is never saved: save it on a way, or list it in given ({{{{ is a brace)"
            yield Problem("missing_field", state, text)


def check_buttons(flow: "Flow", state: State) -> Iterator[Problem]:
    buttons = state.all_buttons()
    if buttons and not all(text.strip() for text in _versions(flow, state.say or "")):
        yield Problem(
            "bad_button", state.name, "it has buttons and says nothing: they need a message to stand under"
        )
    yield from _alike(flow, state, buttons)
    triggers = {way.trigger for way in state.on}
    for button in buttons:
        yield from _button(flow, state, button, triggers)
    if len(buttons) > MOST_BUTTONS or any(len(row) > WIDEST_ROW for row in state.buttons):
        text = f"a row has at most {WIDEST_ROW} buttons, a message {MOST_BUTTONS}: use more rows or states"
        yield Problem("too_long", state.name, text)


def _alike(flow: "Flow", state: State, buttons: Sequence[Button]) -> Iterator[Problem]:
    """In whatever language."""
    languages = [None] if flow.texts is None else [*flow.texts.languages]
    readings = (Counter(flow.text(button.text, language) for button in buttons) for language in languages)
    for text, times in dict(item for reading in readings for item in reading.items() if item[1] > 1).items():
        yield Problem("ambiguous", state.name, f"{times} buttons read {text!r}: give each a text of its own")


def _button(flow: "Flow", state: State, button: Button, triggers: Collection[str]) -> Iterator[Problem]:
    if [button.to, button.trigger, button.url].count(None) != 2:  # noqa: PLR2004  (all but one)
        text = f"the button {button.text!r} needs one of to, trigger and url"
        yield Problem("bad_button", state.name, text)
    if button.trigger is not None and f"button:{button.trigger}" not in triggers:
        text = f"no way has the trigger button:{button.trigger}: add one to the state's on"
        yield Problem("bad_button", state.name, text)
    if button.url is not None and not all(map(_ADDRESS.match, _versions(flow, button.url))):
        text = f"the button {button.text!r} leads to {button.url!r}: an address begins with https:// or tg://"
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
