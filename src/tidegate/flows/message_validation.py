"""Finds everything that is wrong with what a flow says: texts, buttons, keys and files."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.flows.model import Button, FlowState, Key
from tidegate.flows.problem import Problem
from tidegate.templates import MAX_CAPTION_LENGTH, MAX_TEXT_LENGTH, fields_in, utf16_length

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow

MAX_ANSWER_LENGTH: Final = 200  # https://core.telegram.org/bots/api#answercallbackquery
MAX_BUTTON_LENGTH: Final = 64  # characters; more is cut on any screen
MAX_ROW_BUTTONS, MAX_BUTTONS = 8, 100  # Telegram cuts or refuses more
TURNING_BUTTONS: Final = 3  # below a page of a list
MAX_ALBUM: Final = 10
# The kinds that may be together: https://core.telegram.org/bots/api#sendmediagroup
_ALBUMS: Final = (frozenset(("photo", "video")), frozenset(("document",)), frozenset(("audio",)))
# A text that looks like a key: `welcome`, `Buttons.Buy`, `Hi_text`.
_KEY = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*|[A-Za-z][A-Za-z0-9]*(?:[._][A-Za-z0-9]+)+")
_URL = re.compile(r"(?:https?|tg)://\S|\{")  # the value of a field is not known here


def check_flow_texts(flow: "Flow", saved: Collection[str]) -> Iterator[Problem]:
    for said in dict.fromkeys((flow.otherwise, flow.expired)):
        yield from _check_text(flow, None, said, saved)
    yield from _check_text(flow, None, flow.stale, saved, MAX_ANSWER_LENGTH)


def check_messages(
    flow: "Flow", state: FlowState, saved: Collection[str], *, files: bool = True
) -> Iterator[Problem]:
    """`files`: look whether the files that are named are there."""
    yield from _check_buttons(flow, state)
    yield from _check_keys(flow, state)
    yield from _check_choices(flow, state, saved)
    yield from _check_media(state, files=files)
    for said in dict.fromkeys(_texts_of_state(state)):
        is_caption = said == state.say and state.media and not (state.is_album and _has_buttons(state))
        longest = MAX_CAPTION_LENGTH if is_caption else MAX_TEXT_LENGTH
        yield from _check_text(flow, state.name, said, saved, longest)
    for place in dict.fromkeys(one.file or one.id or "" for one in state.media):
        yield from _check_fields(state.name, [place], saved)


def _has_buttons(state: FlowState) -> bool:
    return bool(state.all_buttons() or state.all_keys() or state.choices)


def _check_text(
    flow: "Flow", state: str | None, said: str, saved: Collection[str], longest: int = MAX_TEXT_LENGTH
) -> Iterator[Problem]:
    yield from _check_translation(flow, state, said)
    for text in _translations(flow, said):
        if utf16_length(text) > longest:
            shown = f"{text[:20]!r}… has {utf16_length(text):,} characters"
            yield Problem("too_long", state, f"{shown}: Telegram takes {longest:,}")
    yield from _check_fields(state, list(_translations(flow, said)), saved)


def _check_fields(state: str | None, texts: Sequence[str], saved: Collection[str]) -> Iterator[Problem]:
    for field in dict.fromkeys(name for text in texts for name in fields_in(text)):
        if field not in saved:
            text = (
                f"{{{field}}} is never saved: save it on a transition, or list it in given ({{{{ is a brace)"
            )
            yield Problem("missing_field", state, text)


def _check_buttons(flow: "Flow", state: FlowState) -> Iterator[Problem]:
    buttons = state.all_buttons()
    if _has_buttons(state) and not (_shows_one_file(state) or _says(flow, state)):
        yield Problem(
            "bad_button", state.name, "it has buttons and says nothing: they need a message to stand under"
        )
    yield from _check_equal_texts(flow, state, buttons, "buttons")
    triggers = {transition.trigger for transition in state.on}
    for button in buttons:
        yield from _check_button(flow, state, button, triggers)
    listed = 0 if state.choices is None else state.choices.page + TURNING_BUTTONS
    if len(buttons) + listed > MAX_BUTTONS or any(len(row) > MAX_ROW_BUTTONS for row in state.buttons):
        text = (
            f"a row has at most {MAX_ROW_BUTTONS} buttons, a message {MAX_BUTTONS}: use more rows or states"
        )
        yield Problem("too_long", state.name, text)


def _shows_one_file(state: FlowState) -> bool:
    """An album has no buttons, and a file whose id has no value is left out."""
    certain = [one for one in state.media if one.file is not None or not fields_in(one.id or "")]
    return len(state.media) == len(certain) == 1


def _says(flow: "Flow", state: FlowState) -> bool:
    return all(text.strip() for text in _translations(flow, state.say or ""))


def _check_equal_texts(
    flow: "Flow", state: FlowState, buttons: Sequence[Button | Key], what: str
) -> Iterator[Problem]:
    """Two buttons or keys of a state must not read the same in any language."""
    languages = [None] if flow.texts is None else [*flow.texts.languages]
    readings = (Counter(flow.text(button.text, language) for button in buttons) for language in languages)
    for text, times in dict(item for reading in readings for item in reading.items() if item[1] > 1).items():
        yield Problem("ambiguous", state.name, f"{times} {what} read {text!r}: give each a text of its own")


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
    yield from _check_label(flow, state, button.text, "button")


def _check_label(flow: "Flow", state: FlowState, label: str, what: str) -> Iterator[Problem]:
    for text in _translations(flow, label):
        if not text.strip():
            yield Problem("bad_button", state.name, f"a {what} has no text: give it one")
        if len(text) > MAX_BUTTON_LENGTH:
            shown = f"the {what} {text[:20]!r}… has {len(text)} characters"
            yield Problem("too_long", state.name, f"{shown}: give it at most {MAX_BUTTON_LENGTH}")


def _check_keys(flow: "Flow", state: FlowState) -> Iterator[Problem]:
    keys = state.all_keys()
    yield from _check_equal_texts(flow, state, keys, "keys")
    for key in keys:
        yield from _check_label(flow, state, key.text, "key")
        if key.to is None and (key.guard or key.save or key.value):
            text = f"the key {key.text!r} leads nowhere, so its guard, save and value do nothing: give it to"
            yield Problem("bad_button", state.name, text)
        if key.request is None and not isinstance(key.save, str) and key.save:
            text = f"the key {key.text!r} brings one value, and save names several fields: give one name"
            yield Problem("bad_button", state.name, text)
    if keys and (state.buttons or state.choices):
        text = "it has buttons and keys, and Telegram takes one or the other with a message: remove one kind"
        yield Problem("bad_button", state.name, text)
    if keys and state.in_place:
        text = "it has keys, which only a new message can bring: remove in_place or the keys"
        yield Problem("bad_button", state.name, text)


def _check_choices(flow: "Flow", state: FlowState, saved: Collection[str]) -> Iterator[Problem]:
    if (choices := state.choices) is None:
        return
    yield from _check_label(flow, state, choices.text, "button of an item")
    yield from _check_translation(flow, state.name, choices.text)
    if choices.field not in saved:
        text = f"it lists {choices.field}, which is never saved: save it on a transition, or list it in given"
        yield Problem("missing_field", state.name, text)
    if choices.page < 1 or not 1 <= choices.columns <= MAX_ROW_BUTTONS:
        text = f"a page has 1 item or more, in 1 to {MAX_ROW_BUTTONS} columns: correct page and columns"
        yield Problem("bad_button", state.name, text)
    if choices.to is None and not any(one.trigger == choices.trigger for one in state.on):
        text = f"a chosen item leads nowhere: give to, or add a transition with the trigger {choices.trigger}"
        yield Problem("bad_button", state.name, text)
    if choices.to is None and (choices.guard or choices.save):
        text = "its choices have no to, so their guard and save do nothing: give them to the transition"
        yield Problem("bad_button", state.name, text)


def _check_media(state: FlowState, *, files: bool) -> Iterator[Problem]:
    for one in state.media:
        if (one.file is None) == (one.id is None):
            text = f"a {one.kind} needs one of file (a path) and id (a file_id or an address)"
            yield Problem("bad_media", state.name, text)
        elif files and one.file is not None and not fields_in(one.file) and not Path(one.file).is_file():
            is_address = one.file.startswith(("http://", "https://"))
            text = (
                f"{one.file} is an address, and no file of this machine: give it as id"
                if is_address
                else f"there is no file {one.file}: put it there, or correct it"
            )
            yield Problem("bad_media", state.name, text)
    kinds = {one.kind for one in state.media}
    if state.is_album and not any(kinds <= together for together in _ALBUMS):
        text = (
            f"{' and '.join(sorted(kinds))} cannot be in one album: photos and videos can, or one kind alone"
        )
        yield Problem("bad_media", state.name, text)
    if len(state.media) > MAX_ALBUM:
        text = f"an album has {len(state.media)} files: Telegram takes {MAX_ALBUM}"
        yield Problem("too_long", state.name, text)


def _texts_of_state(state: FlowState) -> Iterator[str]:
    nudge = state.timeout.say if state.timeout is not None else None
    empty = state.choices.empty if state.choices is not None else None
    for text in (state.say, empty, state.otherwise, nudge, *(transition.say for transition in state.on)):
        if text:
            yield text
    for button in state.all_buttons():
        yield button.text
        if button.url is not None:
            yield button.url
    for key in state.all_keys():
        yield key.text


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
