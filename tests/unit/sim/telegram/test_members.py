"""The people of a group: who comes and goes, what a bot does to them, what it is told."""

import pytest

from simulated import Call
from tidegate.errors import BadInputError
from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.telegram.entities import SimulatedBot

GROUP, SUPERGROUP = -5, -1_000_000_000_005


@pytest.fixture
async def guest(telegram: SimulatedTelegram, bot: SimulatedBot) -> Person:
    return Person(telegram, bot, 7, chat=SUPERGROUP)


async def status(ok: Call, user_id: int = 7) -> str:
    return str((await ok("getChatMember", chat_id=SUPERGROUP, user_id=user_id))["status"])


async def test_whoever_comes_and_goes_is_told_to_a_bot_that_asked(guest: Person, ok: Call) -> None:
    await ok("getUpdates", allowed_updates=["message", "chat_member"])
    guest.joins()
    guest.joins()  # is there already
    guest.departs()
    came, hello, went, goodbye = await ok("getUpdates")
    changes = [
        (news["chat_member"]["old_chat_member"]["status"], news["chat_member"]["new_chat_member"]["status"])
        for news in (came, went)
    ]
    assert changes == [("left", "member"), ("member", "left")]
    assert [user["id"] for user in hello["message"]["new_chat_members"]] == [7]
    assert goodbye["message"]["left_chat_member"]["id"] == 7


async def test_a_group_counts_its_owner_the_bot_and_whoever_was_seen(guest: Person, ok: Call) -> None:
    assert await ok("getChatMemberCount", chat_id=SUPERGROUP) == 2
    guest.says("hello")
    assert await ok("getChatMemberCount", chat_id=SUPERGROUP) == 3
    guest.departs()
    assert await ok("getChatMemberCount", chat_id=SUPERGROUP) == 2
    assert await ok("getChatMemberCount", chat_id=7) == 2


async def test_the_banned_stay_out_until_they_are_let_in(guest: Person, ok: Call) -> None:
    guest.says("hello")
    await ok("getUpdates", allowed_updates=["chat_member"])
    await ok("banChatMember", chat_id=SUPERGROUP, user_id=7, until_date=5)
    assert await status(ok) == "kicked"
    assert (await ok("getUpdates"))[-1]["chat_member"]["new_chat_member"]["until_date"] == 5
    with pytest.raises(BadInputError, match="not in chat"):
        guest.says("let me in")
    with pytest.raises(BadInputError, match="banned"):
        guest.joins()
    await ok("unbanChatMember", chat_id=SUPERGROUP, user_id=7, only_if_banned=True)
    guest.joins()
    assert await status(ok) == "member"
    await ok("unbanChatMember", chat_id=SUPERGROUP, user_id=7, only_if_banned=True)
    assert await status(ok) == "member"
    await ok("unbanChatMember", chat_id=SUPERGROUP, user_id=7)  # throws out whoever is in
    assert await status(ok) == "left"


async def test_restrictions_and_rights_are_as_given(guest: Person, ok: Call) -> None:
    guest.says("hello")
    may = {"can_send_messages": True}
    await ok("restrictChatMember", chat_id=SUPERGROUP, user_id=7, permissions=may)
    member = await ok("getChatMember", chat_id=SUPERGROUP, user_id=7)
    assert (member["status"], member["can_send_messages"], member["can_send_polls"]) == (
        "restricted",
        True,
        False,
    )
    await ok("promoteChatMember", chat_id=SUPERGROUP, user_id=7, can_pin_messages=True)
    owner, promoted = await ok("getChatAdministrators", chat_id=SUPERGROUP)
    assert owner["status"] == "creator"
    assert (promoted["user"]["id"], promoted["can_pin_messages"], promoted["can_edit_stories"]) == (
        7,
        True,
        False,
    )
    assert await status(ok, owner["user"]["id"]) == "creator"
    await ok("promoteChatMember", chat_id=SUPERGROUP, user_id=7)
    assert await status(ok) == "member"


async def test_a_bot_that_left_says_nothing_until_it_is_taken_in(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, fails: Call
) -> None:
    await ok("leaveChat", chat_id=SUPERGROUP)
    assert await fails("sendMessage", chat_id=SUPERGROUP, text="x") == (
        403,
        "Forbidden: bot is not a member of the supergroup chat",
    )
    assert await status(ok, 42) == "left"
    chat = telegram.world.chat(bot, SUPERGROUP)
    assert chat is not None
    telegram.world.kick(bot, chat, telegram.clock.now(), kicked=False)
    await ok("sendMessage", chat_id=SUPERGROUP, text="x")
    changes = [update["my_chat_member"]["new_chat_member"]["status"] for update in await ok("getUpdates")]
    assert changes == ["left", "member"]


async def test_a_group_has_a_title_and_links(ok: Call, fails: Call) -> None:
    await ok("setChatTitle", chat_id=GROUP, title="Harbour")
    await ok("setChatDescription", chat_id=GROUP, description="Boats")
    assert (await ok("getChat", chat_id=GROUP))["title"] == "Harbour"
    link = await ok("createChatInviteLink", chat_id=GROUP, name="friends", member_limit=5)
    assert (link["name"], link["member_limit"], link["is_revoked"]) == ("friends", 5, False)
    assert await ok("exportChatInviteLink", chat_id=GROUP) != link["invite_link"]
    assert await fails("setChatTitle", chat_id=GROUP, title="") == (400, "Bad Request: title can't be empty")


async def test_nobody_here_has_a_photo(ann: Person, ok: Call, fails: Call) -> None:
    assert await ok("getUserProfilePhotos", user_id=ann.id) == {"total_count": 0, "photos": []}
    assert await fails("getUserProfilePhotos", user_id=99) == (400, "Bad Request: user not found")


@pytest.mark.parametrize(
    ("method", "chat_id", "reason"),
    [
        ("setChatTitle", 7, "can't change private chat title"),
        ("setChatDescription", 7, "can't change private chat description"),
        ("leaveChat", 7, "can't leave private chats"),
        ("banChatMember", 7, "can't ban members in private chats"),
        ("unbanChatMember", 7, "chat member status can't be changed in private chats"),
        ("restrictChatMember", GROUP, "method is available only for supergroups"),
        ("promoteChatMember", GROUP, "method is available for supergroup and channel chats only"),
        ("getChatAdministrators", 7, "there are no administrators in the private chat"),
        ("createChatInviteLink", 7, "can't manage invite links in a private chat"),
        ("exportChatInviteLink", 7, "can't manage invite links in a private chat"),
    ],
)
async def test_what_a_chat_cannot_have_is_refused(
    fails: Call, method: str, chat_id: int, reason: str
) -> None:
    assert await fails(method, chat_id=chat_id, user_id=8) == (400, f"Bad Request: {reason}")


@pytest.mark.parametrize(
    ("user_id", "reason"),
    [
        (42, "invalid user_id specified"),
        (0, "invalid user_id specified"),
        (777000, "can't remove chat owner"),
    ],
)
async def test_bots_and_the_owner_are_not_thrown_out(fails: Call, user_id: int, reason: str) -> None:
    assert await fails("banChatMember", chat_id=GROUP, user_id=user_id) == (400, f"Bad Request: {reason}")


async def test_restrictions_need_permissions(fails: Call) -> None:
    assert await fails("restrictChatMember", chat_id=SUPERGROUP, user_id=7) == (
        400,
        "Bad Request: object expected as permissions",
    )


async def test_nobody_comes_into_a_private_chat(ann: Person) -> None:
    with pytest.raises(BadInputError, match="is private"):
        ann.joins()


async def test_the_seats_of_a_group_are_bounded(
    telegram: SimulatedTelegram, bot: SimulatedBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.sim.telegram.entities.MEMBERS_PER_GROUP", 10)
    for user_id in range(1, 20):
        telegram.world.user_says(bot, user_id, "hi", telegram.clock.now(), GROUP)
    chat = telegram.world.chat(bot, GROUP)
    assert chat is not None
    assert len(chat.members) == 10
