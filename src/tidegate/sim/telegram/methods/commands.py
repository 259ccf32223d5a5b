"""The commands that a bot offers, for whom, and in which language. Nothing of it is limited."""

import re
from typing import Final

from tidegate.sim.telegram.call import Call, bad_request
from tidegate.sim.telegram.methods.base import Methods
from tidegate.sim.telegram.methods.profile import MOST_KEPT, language_of
from tidegate.sim.telegram.residents import Json, keep

MOST_COMMANDS = 100
MAX_DESCRIPTION = 256
_COMMAND = re.compile(r"/?([a-z0-9_]{1,32})")
_SCOPES = ("default", "all_private_chats", "all_group_chats", "all_chat_administrators")
_SCOPES_OF_CHATS = ("chat", "chat_administrators", "chat_member")


def set_my_commands(call: Call) -> bool:
    given = call.objects("commands", expected="BotCommand")
    if len(given) > MOST_COMMANDS:
        raise bad_request("BOT_COMMANDS_TOO_MUCH")
    commands = [_command(command) for command in given]
    if not commands:
        return delete_my_commands(call)
    keep(call.bot.profile.commands, _scope(call), commands, MOST_KEPT)
    return True


def get_my_commands(call: Call) -> list[Json]:
    return call.bot.profile.commands.get(_scope(call), [])


def delete_my_commands(call: Call) -> bool:
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
    if not 1 <= len(description) <= MAX_DESCRIPTION:
        raise bad_request("BOT_COMMAND_DESCRIPTION_INVALID")
    return {"command": match[1], "description": description}


def _scope(call: Call) -> tuple[object, ...]:
    """For whom the commands are, and in which language."""
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
    "setMyCommands": set_my_commands,
    "getMyCommands": get_my_commands,
    "deleteMyCommands": delete_my_commands,
}
