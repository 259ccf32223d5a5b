"""What a bot is and says of itself: name, descriptions, menu button. Nothing of it is limited."""

import re
from typing import Final

from tidegate.sim.telegram.call import Call, bad_request
from tidegate.sim.telegram.methods.base import Methods
from tidegate.sim.telegram.residents import Json, keep

MOST_KEPT = 1_000  # of each kind, for each bot
MAX_NAME, MAX_DESCRIPTION, MAX_SHORT_DESCRIPTION = 64, 512, 120
_LANGUAGE = re.compile(r"(?:[a-z]{2})?")


def get_me(call: Call) -> Json:
    abilities = {"can_join_groups": True, "can_read_all_group_messages": False}
    return call.bot.json | abilities | {"supports_inline_queries": True}


def set_my_name(call: Call) -> bool:
    return _set_text(call, call.bot.profile.names, "name", MAX_NAME)


def get_my_name(call: Call) -> Json:
    return {"name": _get_text(call, call.bot.profile.names) or call.bot.json["first_name"]}


def set_my_description(call: Call) -> bool:
    return _set_text(call, call.bot.profile.descriptions, "description", MAX_DESCRIPTION)


def get_my_description(call: Call) -> Json:
    return {"description": _get_text(call, call.bot.profile.descriptions)}


def set_my_short_description(call: Call) -> bool:
    texts = call.bot.profile.short_descriptions
    return _set_text(call, texts, "short_description", MAX_SHORT_DESCRIPTION)


def get_my_short_description(call: Call) -> Json:
    return {"short_description": _get_text(call, call.bot.profile.short_descriptions)}


def set_chat_menu_button(call: Call) -> bool:
    button = _menu_button(call.nested("menu_button"))
    keep(call.bot.profile.menu_buttons, _menu_of(call), button, MOST_KEPT)
    return True


def get_chat_menu_button(call: Call) -> Json:
    buttons, chat_id = call.bot.profile.menu_buttons, _menu_of(call)
    return buttons.get(chat_id) or buttons.get(0) or {"type": "default"}


def leave_the_server(_: Call) -> bool:
    """For logOut and close, of bots that move to another Bot API server: nothing changes here."""
    return True


def language_of(call: Call) -> str:
    language = call.word("language_code")
    if not _LANGUAGE.fullmatch(language):
        raise bad_request("invalid language code specified")
    return language


def _set_text(call: Call, texts: dict[str, str], name: str, most: int) -> bool:
    language, text = language_of(call), call.text(name, most, what=name.replace("_", " "))
    if text:
        keep(texts, language, text, MOST_KEPT)
    else:
        texts.pop(language, None)
    return True


def _get_text(call: Call, texts: dict[str, str]) -> str:
    return texts.get(language_of(call)) or texts.get("", "")


def _menu_of(call: Call) -> int:
    """The chat whose button it is; 0 for the button of all others."""
    if call.params.get("chat_id") is None:
        return 0
    chat = call.chat()
    if chat.type != "private":
        raise bad_request("chat not found")
    return chat.id


def _menu_button(button: object) -> Json:
    if button is None:
        return {"type": "default"}
    if not isinstance(button, dict):
        raise bad_request("can't parse menu button: menuButton must be an Object")
    kind, text, app = button.get("type"), button.get("text"), button.get("web_app")
    if kind in ("default", "commands"):
        return {"type": kind}
    if kind != "web_app":
        raise bad_request("can't parse menu button: menuButton has unsupported type")
    if not isinstance(text, str) or not isinstance(app, dict) or not isinstance(app.get("url"), str):
        raise bad_request("can't parse menu button: can't find field \"web_app\"")
    return {"type": kind, "text": text, "web_app": {"url": app["url"]}}


METHODS: Final[Methods] = {
    "getMe": get_me,
    "setMyName": set_my_name,
    "getMyName": get_my_name,
    "setMyDescription": set_my_description,
    "getMyDescription": get_my_description,
    "setMyShortDescription": set_my_short_description,
    "getMyShortDescription": get_my_short_description,
    "setChatMenuButton": set_chat_menu_button,
    "getChatMenuButton": get_chat_menu_button,
    "logOut": leave_the_server,
    "close": leave_the_server,
}
