"""The messages of a session: those of its states, transitions and answers. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tidegate.flows.effects import SayText, ShownButton, ShownKey, ShownMedia
from tidegate.flows.flow import DEFAULT_TEXTS, Flow
from tidegate.flows.message_validation import MAX_ANSWER_LENGTH, MAX_BUTTON_LENGTH
from tidegate.flows.model import Button, Choices, FlowState, Key, Media, page_code, press_data
from tidegate.flows.session import Session
from tidegate.templates import (
    MAX_CAPTION_LENGTH,
    MAX_TEXT_LENGTH,
    cut,
    escape,
    fields_in,
    fill,
    fill_link,
    fill_message,
    unescape,
)

# A part of a path that cannot lead elsewhere: no separator, and no dot at its start.
_PATH_PART = re.compile(r"\w[\w .,@+-]*")
EARLIER, LATER = "«", "»"  # the same in every language
NO_TEXT: Final = "…"  # Telegram refuses a message for one button without a text


def text_message(flow: Flow, session: Session, text: str, longest: int = MAX_TEXT_LENGTH) -> SayText | None:
    """None for an empty text, which Telegram would refuse. The default texts have no formatting."""
    found = flow.text(text, session.language)
    if found in DEFAULT_TEXTS:
        return SayText(escape(found, flow.parse_mode))
    filled = fill_message(found, session.data, flow.parse_mode, longest)
    return SayText(filled) if filled.strip() else None


def state_messages(flow: Flow, session: Session, state: FlowState) -> list[SayText]:
    """The text of a state with its files, and its buttons or keys. They stand below an album's text, which is
    a message of its own then.
    """
    media = tuple(_shown_media(session, state.media))
    items = items_of(session, state)
    buttons = tuple(row for row in _button_rows(flow, session, state, items) if row)
    keys = tuple(tuple(_shown_key(flow, session, key) for key in row) for row in state.keys)
    apart = len(media) > 1 and bool(buttons or keys)
    said = text_message(
        flow,
        session,
        _state_text(state, items),
        MAX_CAPTION_LENGTH if media and not apart else MAX_TEXT_LENGTH,
    )
    text = "" if said is None else said.text
    if apart:
        return [SayText("", media=media), *([SayText(text, buttons, keys=keys)] if text else [])]
    return [SayText(text, buttons, media, keys)] if text or media else []


def items_of(session: Session, state: FlowState) -> list[Any]:
    """The list that the user chooses from. Raises ValueError if the data has something else there."""
    if state.choices is None:
        return []
    items = session.data.get(state.choices.field)
    if not isinstance(items, list | None):
        raise ValueError(f"{state.choices.field} is {type(items).__name__}, and a list was expected")  # noqa: TRY004  (one kind for the caller)
    return items or []


def page_count(choices: Choices, items: Sequence[object]) -> int:
    return max(1, -(-len(items) // choices.page))


def press_answer(flow: Flow, text: str, data: Mapping[str, Any], language: str | None) -> str:
    """The answer to a press, which has no formatting."""
    return cut(fill(unescape(flow.text(text, language), flow.parse_mode), data), MAX_ANSWER_LENGTH)


def key_text(flow: Flow, session: Session, key: Key) -> str:
    """The text of a key, which the user sends by pressing it."""
    return _label(flow, session, key.text)


def _state_text(state: FlowState, items: Sequence[object]) -> str:
    empty = state.choices.empty if state.choices is not None else None
    return (state.say if items or empty is None else empty) or ""


def _button_rows(
    flow: Flow, session: Session, state: FlowState, items: Sequence[object]
) -> Iterator[tuple[ShownButton, ...]]:
    if state.choices is not None and items:
        yield from _choice_rows(flow, session, state.choices, items)
    for row in state.buttons:
        yield tuple(_shown_buttons(flow, session, row))


def _choice_rows(
    flow: Flow, session: Session, choices: Choices, items: Sequence[object]
) -> Iterator[tuple[ShownButton, ...]]:
    """The items of a page, and below them the buttons that turn it."""
    pages = page_count(choices, items)
    page = min(session.pages.get(session.state, 0), pages - 1)
    shown = [
        ShownButton(
            _item_text(flow, session, choices, item),
            data=press_data(flow.name, session.visit, choices.code(item)),
        )
        for item in items[page * choices.page : (page + 1) * choices.page]
    ]
    for begin in range(0, len(shown), choices.columns):
        yield tuple(shown[begin : begin + choices.columns])
    if pages > 1:
        turns = {page - 1: EARLIER, page: f"{page + 1}/{pages}", page + 1: LATER}
        yield tuple(
            ShownButton(text, data=press_data(flow.name, session.visit, page_code(to)))
            for to, text in turns.items()
            if 0 <= to < pages
        )


def _item_text(flow: Flow, session: Session, choices: Choices, item: object) -> str:
    fields = item if isinstance(item, Mapping) else {"item": item}
    return _label(flow, session, choices.text, {**session.data, **fields})


def _shown_buttons(flow: Flow, session: Session, row: Iterable[Button]) -> Iterator[ShownButton]:
    """Without buttons that have no address: Telegram refuses a message for one of them."""
    for button in row:
        text = _label(flow, session, button.text)
        if button.url is None:
            yield ShownButton(text, data=press_data(flow.name, session.visit, button.code))
        elif url := fill_link(flow.text(button.url, session.language), session.data):
            yield ShownButton(text, url=url)


def _shown_key(flow: Flow, session: Session, key: Key) -> ShownKey:
    return ShownKey(key_text(flow, session, key), key.request)


def _shown_media(session: Session, media: Iterable[Media]) -> Iterator[ShownMedia]:
    """Raises ValueError for a value that must not stand in a path."""
    for one in media:
        if one.file is not None:
            yield ShownMedia(one.kind, file=fill(one.file, _path_values(one.file, session.data)))
        elif named := fill(one.id or "", session.data).strip():
            yield ShownMedia(one.kind, id=named)


def _path_values(path: str, data: Mapping[str, Any]) -> dict[str, str]:
    values = {field: str(data.get(field, "")) for field in fields_in(path)}
    for field, value in values.items():
        if not _PATH_PART.fullmatch(value):
            raise ValueError(f"{field} is {value[:40]!r}, which cannot be a part of the path {path}")
    return values


def _label(flow: Flow, session: Session, text: str, data: Mapping[str, Any] | None = None) -> str:
    filled = fill(flow.text(text, session.language), session.data if data is None else data)
    return cut(filled.strip() or NO_TEXT, MAX_BUTTON_LENGTH)
