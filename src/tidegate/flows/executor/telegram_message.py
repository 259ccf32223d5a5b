"""Calls of the Bot API for the messages of a flow, and their replacements if Telegram refuses one. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from tidegate.flows.effects import SayText, ShownButton, ShownKey, ShownMedia
from tidegate.model import File

_KEYBOARD: Final = {"resize_keyboard": True, "one_time_keyboard": True}
# Deaths by a message's own fault: after any other, the next message would die as well.
_OWN_FAULTS: Final = ("bad_request", "bad_input", "too_large")
_MEDIA_KINDS: Final = {
    "sendPhoto": "photo",
    "sendDocument": "document",
    "sendVideo": "video",
    "sendAudio": "audio",
    "sendAnimation": "animation",
}
_METHODS: Final = {kind: method for method, kind in _MEDIA_KINDS.items()}


def message_fields(say: SayText, parse_mode: str | None) -> dict[str, Any]:
    """The method and parameters of a message, without its chat."""
    shared: dict[str, Any] = {"parse_mode": parse_mode} if parse_mode is not None else {}
    markup = _reply_markup(say)
    marked = shared if markup is None else {**shared, "reply_markup": markup}
    if len(say.media) > 1:
        items = [_input_media(one, "", {}) for one in say.media]
        items[0] = _input_media(say.media[0], say.text, shared)
        return {"method": "sendMediaGroup", "media": items}
    edited = {} if say.edits is None else {"message_id": say.edits}
    if not say.media:
        return {
            "method": "editMessageText" if edited else "sendMessage",
            **edited,
            "text": say.text,
            **marked,
        }
    one = say.media[0]
    if edited:
        keyboard = {} if markup is None else {"reply_markup": markup}
        return {
            "method": "editMessageMedia",
            **edited,
            "media": _input_media(one, say.text, shared),
            **keyboard,
        }
    return {"method": _METHODS[one.kind], one.kind: _source(one), **_caption(say.text, marked)}


def replacement_fields(method: str, params: Mapping[str, Any], reason: str) -> dict[str, Any] | None:
    """Return the fields of a message to send in place of one that Telegram has refused.

    A new message replaces one that cannot be edited, the text a file that cannot be sent. None if nothing
    would help.
    """
    if not reason.startswith(_OWN_FAULTS):
        return None
    kept = {name: params[name] for name in ("reply_markup", "message_thread_id") if name in params}
    if method == "editMessageMedia":
        media = params["media"]
        return {
            "method": _METHODS[media["type"]],
            media["type"]: media["media"],
            **_without_file(media),
            **kept,
        }
    if method == "editMessageText":
        captioned = {"caption": params.get("text"), "parse_mode": params.get("parse_mode")}
    elif method == "sendMediaGroup":
        captioned = params["media"][0]
    elif method in _MEDIA_KINDS:
        captioned = dict(params)
    else:
        return None
    if not captioned.get("caption"):
        return None
    mode = captioned.get("parse_mode")
    shared = {} if mode is None else {"parse_mode": mode}
    return {"method": "sendMessage", "text": captioned["caption"], **shared, **kept}


def _without_file(media: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in media.items() if name not in {"type", "media"}}


def _input_media(one: ShownMedia, text: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": one.kind, "media": _source(one), **_caption(text, shared if text else {})}


def _caption(text: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    return {"caption": text, **shared} if text else dict(shared)


def _source(one: ShownMedia) -> File | str | None:
    return one.id if one.file is None else File(path=one.file)


def _reply_markup(say: SayText) -> dict[str, Any] | None:
    if say.buttons:
        return {"inline_keyboard": [[_button(one) for one in row] for row in say.buttons]}
    if say.keys:
        return {"keyboard": [[_key(one) for one in row] for row in say.keys], **_KEYBOARD}
    return {"remove_keyboard": True} if say.removes_keys else None


def _button(button: ShownButton) -> dict[str, str]:
    if button.url is not None:
        return {"text": button.text, "url": button.url}
    return {"text": button.text, "callback_data": button.data or ""}


def _key(key: ShownKey) -> dict[str, Any]:
    return {"text": key.text} if key.request is None else {"text": key.text, f"request_{key.request}": True}
