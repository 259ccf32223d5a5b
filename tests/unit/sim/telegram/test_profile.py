"""What a bot says of itself: kept for each language and scope, and said back."""

import pytest

from simulated import Call

START = {"command": "start", "description": "Begin"}
HELP = {"command": "help", "description": "Explain"}


async def test_commands_are_kept_for_each_scope_and_language(ok: Call) -> None:
    chat = {"type": "chat", "chat_id": 7}
    await ok("setMyCommands", commands=[START])
    await ok("setMyCommands", commands=[HELP], scope=chat)
    await ok("setMyCommands", commands=[HELP, START], language_code="de")
    assert await ok("getMyCommands") == [START]
    assert await ok("getMyCommands", scope=chat) == [HELP]
    assert await ok("getMyCommands", language_code="de") == [HELP, START]
    assert await ok("getMyCommands", scope={"type": "chat_member", "chat_id": 7, "user_id": 7}) == []


async def test_deleted_commands_are_gone_from_their_scope_only(ok: Call) -> None:
    groups = {"type": "all_group_chats"}
    await ok("setMyCommands", commands=[START])
    await ok("setMyCommands", commands=[START], scope=groups)
    await ok("deleteMyCommands", scope=groups)
    assert await ok("getMyCommands", scope=groups) == []
    await ok("setMyCommands", commands=[])
    assert await ok("getMyCommands") == []


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "expected an Array of BotCommand"),
        ({"commands": [START] * 101}, "BOT_COMMANDS_TOO_MUCH"),
        ({"commands": [{"command": "Big", "description": "x"}]}, "BOT_COMMAND_INVALID"),
        ({"commands": [{"command": "big", "description": ""}]}, "BOT_COMMAND_DESCRIPTION_INVALID"),
        ({"commands": [{"command": "big"}]}, "can't parse BotCommand: can't find field \"description\""),
        ({"commands": [START], "language_code": "german"}, "invalid language code specified"),
        (
            {"commands": [START], "scope": {"type": "everywhere"}},
            "can't parse BotCommandScope: unsupported type specified",
        ),
        ({"commands": [START], "scope": {"type": "chat"}}, "chat_id is empty"),
        (
            {"commands": [START], "scope": {"type": "chat_member", "chat_id": 7}},
            "can't parse BotCommandScope: invalid user_id specified",
        ),
    ],
)
async def test_malformed_commands_are_refused(fails: Call, params: dict[str, object], reason: str) -> None:
    assert await fails("setMyCommands", **params) == (400, f"Bad Request: {reason}")


@pytest.mark.parametrize(
    ("what", "parameter", "at_first", "most"),
    [
        ("Name", "name", "Bot 42", 64),
        ("Description", "description", "", 512),
        ("ShortDescription", "short_description", "", 120),
    ],
)
async def test_texts_about_the_bot_fall_back_to_those_without_a_language(
    ok: Call, fails: Call, what: str, parameter: str, at_first: str, most: int
) -> None:
    assert await ok(f"getMy{what}") == {parameter: at_first}
    await ok(f"setMy{what}", **{parameter: "Harbour"})
    await ok(f"setMy{what}", **{parameter: "Hafen"}, language_code="de")
    assert await ok(f"getMy{what}", language_code="de") == {parameter: "Hafen"}
    assert await ok(f"getMy{what}", language_code="fr") == {parameter: "Harbour"}
    await ok(f"setMy{what}", **{parameter: ""}, language_code="de")
    assert await ok(f"getMy{what}", language_code="de") == {parameter: "Harbour"}
    assert (await fails(f"setMy{what}", **{parameter: "x" * (most + 1)}))[0] == 400


async def test_the_menu_button_of_a_chat_goes_before_that_of_all(ok: Call, fails: Call) -> None:
    shop = {"type": "web_app", "text": "Shop", "web_app": {"url": "https://example.org"}}
    assert await ok("getChatMenuButton", chat_id=7) == {"type": "default"}
    await ok("setChatMenuButton", menu_button={"type": "commands"})
    await ok("setChatMenuButton", chat_id=7, menu_button=shop)
    assert await ok("getChatMenuButton", chat_id=7) == shop
    assert await ok("getChatMenuButton", chat_id=8) == {"type": "commands"}
    for button in (5, {"type": "bell"}, {"type": "web_app", "text": "Shop"}):
        assert (await fails("setChatMenuButton", menu_button=button))[0] == 400
    assert await fails("getChatMenuButton", chat_id=-5) == (400, "Bad Request: chat not found")


@pytest.mark.parametrize("method", ["logOut", "close"])
async def test_a_bot_may_say_that_it_moves_to_another_server(ok: Call, method: str) -> None:
    assert await ok(method) is True
