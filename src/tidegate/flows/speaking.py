"""What a person reads: texts in their language with the session's data, buttons that name their visit."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidegate.flows.effects import Say, ShownButton
from tidegate.flows.filling import cut, escape, fill, fill_link, fill_message, unescape
from tidegate.flows.flow import USUAL, Flow
from tidegate.flows.model import Button, State
from tidegate.flows.pressing import press_data
from tidegate.flows.session import Session
from tidegate.flows.text_checks import LONGEST_ANSWER, LONGEST_BUTTON


def spoken(flow: Flow, session: Session, text: str) -> Say | None:
    """None if it comes out empty: Telegram sends no empty messages. A flow's usual words are plain."""
    found = flow.text(text, session.language)
    if found in USUAL:
        return Say(escape(found, flow.parse_mode))
    filled = fill_message(found, session.data, flow.parse_mode)
    return Say(filled) if filled.strip() else None


def shown(flow: Flow, session: Session, state: State) -> Say | None:
    """What a state says, with its buttons."""
    said = spoken(flow, session, state.say or "")
    if said is None:
        return None
    rows = (tuple(_buttons(flow, session, row)) for row in state.buttons)
    return Say(said.text, tuple(row for row in rows if row))


def answered(flow: Flow, text: str, data: Mapping[str, Any], language: str | None) -> str:
    """For the answer to a press, which has no formatting."""
    return cut(fill(unescape(flow.text(text, language), flow.parse_mode), data), LONGEST_ANSWER)


def _buttons(flow: Flow, session: Session, row: Iterable[Button]) -> Iterator[ShownButton]:
    """Telegram refuses a whole message for one button without a text or an address."""
    for button in row:
        text = fill(flow.text(button.text, session.language), session.data).strip() or "…"
        text = cut(text, LONGEST_BUTTON)
        if button.url is None:
            yield ShownButton(text, data=press_data(flow.name, session.visit, button.code))
        elif url := fill_link(flow.text(button.url, session.language), session.data):
            yield ShownButton(text, url=url)
