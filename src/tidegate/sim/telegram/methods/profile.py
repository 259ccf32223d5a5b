"""Bot API methods about the bot itself: name, descriptions, menu button, commands. None is limited."""

import re
from typing import Final

from tidegate.sim.telegram.call import MethodCall, Methods, named_methods
from tidegate.sim.telegram.entities import Json, keep
from tidegate.sim.telegram.parameters import bad_request

MOST_KEPT = 1_000  # of each kind, for each bot
MAX_NAME, MAX_DESCRIPTION, MAX_SHORT_DESCRIPTION = 64, 512, 120
MOST_COMMANDS = 100
MAX_COMMAND_DESCRIPTION = 256
_LANGUAGE = re.compile(r"(?:[a-z]{2})?")
_COMMAND = re.compile(r"/?([a-z0-9_]{1,32})")
_SCOPES = ("default", "all_private_chats", "all_group_chats", "all_chat_administrators")
_SCOPES_OF_CHATS = ("chat", "chat_administrators", "chat_member")


def get_me(call: MethodCall) -> Json:
    abilities = {"can_join_groups": True, "can_read_all_group_messages": False}
    return call.bot.json | abilities | {"supports_inline_queries": True}


def set_my_name(call: MethodCall) -> bool:
    return _set_text(call, call.bot.profile.names, "name", MAX_NAME)


def get_my_name(call: MethodCall) -> Json:
    return {"name": _get_text(call, call.bot.profile.names) or call.bot.json["first_name"]}


def set_my_description(call: MethodCall) -> bool:
    return _set_text(call, call.bot.profile.descriptions, "description", MAX_DESCRIPTION)


def get_my_description(call: MethodCall) -> Json:
    return {"description": _get_text(call, call.bot.profile.descriptions)}


def set_my_short_description(call: MethodCall) -> bool:
    texts = call.bot.profile.short_descriptions
    return _set_text(call, texts, "short_description", MAX_SHORT_DESCRIPTION)


def get_my_short_description(call: MethodCall) -> Json:
    return {"short_description": _get_text(call, call.bot.profile.short_descriptions)}


def set_chat_menu_button(call: MethodCall) -> bool:
    button = _menu_button(call.nested("menu_button"))
    keep(call.bot.profile.menu_buttons, _menu_chat(call), button, MOST_KEPT)
    return True


def get_chat_menu_button(call: MethodCall) -> Json:
    buttons, chat_id = call.bot.profile.menu_buttons, _menu_chat(call)
    return buttons.get(chat_id) or buttons.get(0) or {"type": "default"}


def log_out(_: MethodCall) -> bool:
    """Answer logOut and close, of bots that move to another Bot API server: nothing changes here."""
    return True


def language_of(call: MethodCall) -> str:
    language = call.string("language_code")
    if not _LANGUAGE.fullmatch(language):
        raise bad_request("invalid language code specified")
    return language


def _set_text(call: MethodCall, texts: dict[str, str], name: str, most: int) -> bool:
    language, text = language_of(call), call.text(name, most, what=name.replace("_", " "))
    if text:
        keep(texts, language, text, MOST_KEPT)
    else:
        texts.pop(language, None)
    return True


def _get_text(call: MethodCall, texts: dict[str, str]) -> str:
    return texts.get(language_of(call)) or texts.get("", "")


def _menu_chat(call: MethodCall) -> int:
    """Return the chat of the button; 0 for the default button."""
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


def set_my_commands(call: MethodCall) -> bool:
    given = call.objects("commands", expected="BotCommand")
    if len(given) > MOST_COMMANDS:
        raise bad_request("BOT_COMMANDS_TOO_MUCH")
    commands = [_command(command) for command in given]
    if not commands:
        return delete_my_commands(call)
    keep(call.bot.profile.commands, _scope(call), commands, MOST_KEPT)
    return True


def get_my_commands(call: MethodCall) -> list[Json]:
    return call.bot.profile.commands.get(_scope(call), [])


def delete_my_commands(call: MethodCall) -> bool:
    call.bot.profile.commands.pop(_scope(call), None)
    return True


def _command(command: Json) -> Json:
    name, description = command.get("command"), command.get("description")
    if not isinstance(name, str) or not isinstance(description, str):
        field = "description" if isinstance(name, str) else "command"
        raise bad_request(f"can't parse BotCommand: can't find field \"{field}\"")
    match = _COMMAND.fullmatch(name)
    if match is None:
        raise bad_request("BOT_COMMAND_INVALID")
    if not 1 <= len(description) <= MAX_COMMAND_DESCRIPTION:
        raise bad_request("BOT_COMMAND_DESCRIPTION_INVALID")
    return {"command": match[1], "description": description}


def _scope(call: MethodCall) -> tuple[object, ...]:
    """Return the key of the commands: scope and language."""
    language, scope = language_of(call), call.nested("scope")
    if scope is None:
        return ("default", language)
    if not isinstance(scope, dict):
        raise bad_request("can't parse BotCommandScope: botCommandScope must be an Object")
    kind = scope.get("type")
    if kind in _SCOPES:
        return (kind, language)
    if kind not in _SCOPES_OF_CHATS:
        raise bad_request("can't parse BotCommandScope: unsupported type specified")
    chat, user_id = call.find_chat(scope.get("chat_id")), scope.get("user_id")
    if kind != "chat_member":
        return (kind, chat.id, language)
    if not isinstance(user_id, int) or user_id <= 0:
        raise bad_request("can't parse BotCommandScope: invalid user_id specified")
    return (kind, chat.id, user_id, language)


METHODS: Final[Methods] = {
    **named_methods(
        get_me,
        set_my_name,
        get_my_name,
        set_my_description,
        get_my_description,
        set_my_short_description,
        get_my_short_description,
        set_chat_menu_button,
        get_chat_menu_button,
        log_out,
        set_my_commands,
        get_my_commands,
        delete_my_commands,
    ),
    "close": log_out,
}
