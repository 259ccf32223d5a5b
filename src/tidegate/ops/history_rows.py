"""The rows of history: what is recorded of a message that ended, its attempts, a direct call and an update.

Pure.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

import msgspec

from tidegate.events import Attempted, CallAttempted
from tidegate.history import AttemptOutcome, AttemptRow, HistoryRow
from tidegate.model import (
    BotId,
    Dead,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Record,
    Refused,
    Retry,
    Unknown,
    Unreachable,
)
from tidegate.pacing.rules import family_of
from tidegate.scrubber import scrub_secrets

LONGEST_TEXT: Final = 32_768  # characters; Telegram takes fewer
LONGEST_DESCRIPTION: Final = 500
TEXTS: Final = ("text", "caption", "question")  # the fields in which a message has its text
DELETIONS: Final = frozenset({"deleteMessage", "deleteMessages"})
# Updates that are a message, and whether it is a change of one that came before.
MESSAGE_KINDS: Final = {
    "message": False,
    "edited_message": True,
    "channel_post": False,
    "edited_channel_post": True,
    "business_message": False,
    "edited_business_message": True,
}

Fields = Mapping[str, Any]


def rows_of_end(record: Record, *, texts: bool) -> list[HistoryRow]:
    """Return a row for each message that a ticket has put into a chat; one if it has put none.

    Called for every message: arguments by position are made in a tenth of the time.
    """
    message = record.message
    created_at, ended_at = record.created_at, record.settled_at
    key = f"{message.id}/{int(1e6 * (created_at if ended_at is None else ended_at))}"
    description = record.description
    return [
        HistoryRow(
            f"{key}/{number}" if number else key,
            message.bot,
            "out",
            str(message.chat_id if item.chat_id is None else item.chat_id),
            item.message_id,
            item.reply_to,
            None,
            message.method,
            is_change(message.method),
            item.text if texts else None,
            record.state.value,
            created_at,
            ended_at,
            message.id,
            message.priority.value,
            record.attempts,
            record.reason,
            None if description is None else (_bounded(description) or "")[:LONGEST_DESCRIPTION],
        )
        for number, item in enumerate(_items(message.method, message.params, record.result))
    ]


def row_of_attempt(event: Attempted, key: str, now: float) -> AttemptRow | None:
    """Return the row of an attempt that did not deliver; None if it has."""
    message, answer = event.claim.message, _answer(event.outcome)
    if answer is None:
        return None
    return AttemptRow(
        key=key,
        ticket=message.id,
        bot=message.bot,
        chat_id=str(message.chat_id),
        number=event.claim.attempt,
        at=now,
        seconds=event.seconds,
        outcome=answer.outcome.value,
        reason=_short(answer.reason),
        description=_short(answer.description),
        wait=answer.wait,
    )


class _Answer(msgspec.Struct, frozen=True):
    outcome: AttemptOutcome
    reason: str | None = None
    description: str | None = None
    wait: float | None = None


def _answer(outcome: Outcome) -> _Answer | None:  # noqa: PLR0911  (one a kind of outcome)
    match outcome:
        case Delivered():
            return None
        case Refused(retry_after=wait):
            return _Answer(AttemptOutcome.REFUSED, wait=wait)
        case Retry(delay=wait, reason=reason):
            return _Answer(AttemptOutcome.RETRY, reason, wait=wait)
        case Unknown(reason=reason, delay=wait):
            return _Answer(AttemptOutcome.UNKNOWN, reason, wait=wait)
        case Migrated(chat_id=chat_id):
            return _Answer(AttemptOutcome.MIGRATED, description=f"the group is now the supergroup {chat_id}")
        case Dead(reason=reason, description=description):
            return _Answer(AttemptOutcome.DEAD, reason, description)
        case NotSent(reason=reason, delay=wait):
            return _Answer(AttemptOutcome.NOT_SENT, reason, wait=wait)
        case Unreachable(reason=reason, wait=wait):
            return _Answer(AttemptOutcome.UNREACHABLE, reason, wait=wait)
        case other:
            assert_never(other)


def _short(text: str | None) -> str | None:
    """Return a text of bounded length, or None; it may quote an error of a library, and so a secret."""
    bounded = _bounded(text)
    return None if not bounded else scrub_secrets(bounded)[:LONGEST_DESCRIPTION]


def rows_of_call(event: CallAttempted, key: str, now: float, *, texts: bool) -> list[HistoryRow]:
    """Return a row for each message that a direct call has put into a chat, or changed there."""
    if not isinstance(event.outcome, Delivered) or not _is_about_messages(event.method):
        return []
    items = _items(event.method, event.content(), event.result())
    return [
        HistoryRow(
            key=f"{key}/{number}",
            bot=event.bot,
            direction="out",
            chat_id=str(event.chat_id if item.chat_id is None else item.chat_id),
            telegram_message_id=item.message_id,
            reply_to_message_id=item.reply_to,
            user_id=None,
            kind=event.method,
            is_change=is_change(event.method),
            text=item.text if texts else None,
            state="delivered",
            created_at=now - event.seconds,
            ended_at=now,
        )
        for number, item in enumerate(items)
        if item.message_id is not None and (item.chat_id, event.chat_id) != (None, None)
    ]


def row_of_update(bot: BotId, update: Fields, now: float, *, texts: bool) -> HistoryRow | None:
    """Return the row of an update that is a message or the press of a button in a chat; None for others.

    The press is kept as a reply to the message that has the button. Never raises, whatever Telegram adds.
    """
    kind = next((kind for kind, content in update.items() if isinstance(content, dict)), "")
    content: Fields = update.get(kind) or {}
    if kind == "callback_query":
        message, message_id = _dict(content, "message"), None
        reply_to, text = message.get("message_id"), content.get("data")
    elif kind in MESSAGE_KINDS:
        message, message_id = content, content.get("message_id")
        reply_to, text = _reply_of(message), _text_of(message)
    else:
        return None
    chat_id = _dict(message, "chat").get("id")
    if chat_id is None:
        return None
    return HistoryRow(
        key=f"{bot}/u{update.get('update_id')}",
        bot=bot,
        direction="in",
        chat_id=str(chat_id),
        telegram_message_id=_number(message_id),
        reply_to_message_id=_number(reply_to),
        user_id=_number(_dict(content, "from").get("id")),
        kind=kind,
        is_change=MESSAGE_KINDS.get(kind, False),
        text=_bounded(text) if texts else None,
        state="received",
        created_at=now,
    )


@functools.lru_cache(maxsize=256)
def is_change(method: str) -> bool:
    """Return whether a method changes or deletes a message that is there."""
    return family_of(method) == "edit" or method in DELETIONS


def _is_about_messages(method: str) -> bool:
    return family_of(method) in {"send", "edit"} or method in DELETIONS


class _Item(msgspec.Struct, frozen=True, gc=False):
    message_id: int | None
    chat_id: int | None  # a number, also if the call named an @name
    reply_to: int | None
    text: str | None


def _items(method: str, fields: Fields, result: object) -> list[_Item]:
    """Return the messages of a call, by its answer; of an album or a copy of many there are several."""
    if isinstance(result, list) and result:
        captions = _captions(fields)
        return [
            _item(fields, one if isinstance(one, dict) else {}, captions[at] if at < len(captions) else None)
            for at, one in enumerate(result)
        ]
    text = _text_of(fields) or "\n".join(filter(None, _captions(fields))) or None
    if isinstance(result, dict) and "message_id" in result:
        return [_item(fields, result, text)]
    if not is_change(method):
        return [_Item(None, None, _reply_of(fields), text)]
    many = fields.get("message_ids")
    ids = many if isinstance(many, list | tuple) and many else [fields.get("message_id")]
    return [_Item(_number(one), None, None, text) for one in ids]


def _item(fields: Fields, message: Fields, text: str | None) -> _Item:
    message_id, chat_id = message.get("message_id"), _dict(message, "chat").get("id")
    return _Item(
        message_id if type(message_id) is int else None,
        chat_id if type(chat_id) is int else None,
        _reply_of(message) or _reply_of(fields),
        text or _text_of(message),  # of a forwarded one, the answer has it
    )


def _captions(fields: Fields) -> Sequence[str | None]:
    media = fields.get("media")
    if not isinstance(media, list | tuple):
        return ()
    return [_bounded(item.get("caption")) if isinstance(item, Mapping) else None for item in media]


def _text_of(fields: Fields) -> str | None:
    for name in TEXTS:
        if text := fields.get(name):
            return _bounded(text)
    return None


def _reply_of(fields: Fields) -> int | None:
    """Return the message that is replied to: as a message names it, or as the parameters of a call do."""
    if (parent := fields.get("reply_to_message")) is not None:
        # In a forum, a message that replies to nothing replies to the one that has opened its topic.
        is_topic = not isinstance(parent, dict) or "forum_topic_created" in parent
        return None if is_topic else _number(parent.get("message_id"))
    if (parameters := fields.get("reply_parameters")) is not None:
        return _number(parameters.get("message_id")) if isinstance(parameters, Mapping) else None
    return _number(fields.get("reply_to_message_id"))


def _bounded(text: object) -> str | None:
    """Return a text that every database takes: no zero bytes and no half characters, and not without end."""
    if not isinstance(text, str):
        return None
    if "\0" in text or not (text.isascii() or _is_whole(text)):
        text = text.replace("\0", "").encode(errors="replace").decode()
    return text[:LONGEST_TEXT]


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(value: object) -> int | None:
    return value if type(value) is int else None


def _dict(fields: Fields, name: str) -> Fields:
    found = fields.get(name)
    return found if isinstance(found, dict) else {}
