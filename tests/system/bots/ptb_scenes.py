"""What the public examples of python-telegram-bot promise, and which of them cannot keep it here."""

import json
from typing import Final

from system.bots.audience import GROUP, Audience, Scene

DEVELOPER = 123456789  # in errorhandlerbot.py
POLL: Final = {
    "id": "1",
    "question": "Tea?",
    "options": [{"persistent_id": "0", "text": "Yes", "voter_count": 0}],
    "total_voter_count": 0,
    "is_closed": False,
    "is_anonymous": True,
    "type": "regular",
    "allows_multiple_answers": False,
    "allows_revoting": True,
    "members_only": False,
}


async def echo(audience: Audience) -> None:
    assert (await audience.ask("/start")).startswith("Hi <a href")
    assert await audience.ask("high water") == "high water"
    assert await audience.ask("/help") == "Help!"


async def raw_echo(audience: Audience) -> None:
    assert await audience.ask("high water") == "high water"
    assert await audience.ask("low water") == "low water"


async def any_object_is_behind_a_button(audience: Audience) -> None:
    assert await audience.ask("/start") == "Please choose:"
    buttons = audience.ann.buttons
    assert "selected [3]." in await audience.press(buttons()[2])
    assert "selected [3, 1]." in await audience.press(buttons()[0])
    assert await audience.ask("/clear") == "All clear!"
    assert (await audience.press(buttons()[0])).startswith("Sorry")


async def members_are_greeted(audience: Audience) -> None:
    assert (await audience.ask("hello")).startswith("Welcome User 7.")
    guest, world, now = audience.person(8, GROUP), audience.telegram.world, audience.telegram.clock.now()
    guest.joins()
    assert (await guest.hears())["text"].endswith("Welcome!")
    guest.departs()
    assert "is no longer with us" in (await guest.hears())["text"]
    chat = world.chat(audience.bot, GROUP)
    assert chat is not None
    for kicked in (True, False):
        world.kick(audience.bot, chat, now, kicked=kicked)
    known = await audience.ask("/show_chats")
    assert "user IDs 7." in known
    assert str(GROUP) in known


async def clicks_are_counted(audience: Audience) -> None:
    assert "<i>0</i>" in await audience.ask("/start")
    for clicks in (1, 2):
        assert f"<i>{clicks}</i>" in await audience.press("button")
    assert (await audience.ask("/print_users")).endswith(": 7")


async def professor_asks(audience: Audience) -> None:
    assert (await audience.ask("/start")).startswith("Hi! My name is Professor Bot.")
    assert (await audience.ask("Girl")).startswith("I see!")
    audience.ann.sends_photo(b"picture")
    assert (await audience.hear())["text"].startswith("Gorgeous!")
    audience.ann.shares_location(51.9, 1.3)
    assert (await audience.hear())["text"].startswith("Maybe I can visit you sometime!")
    assert (await audience.ask("I sail")).startswith("Thank you!")


async def doctor_learns(audience: Audience) -> None:
    assert (await audience.ask("/start")).startswith("Hi! My name is Doctor Botter.")
    assert (await audience.ask("Age")).startswith("Your age?")
    assert " - 42" in await audience.ask("42")
    assert (await audience.ask("Something else...")).startswith("Alright")
    assert (await audience.ask("Boat")).startswith("Your boat?")
    assert " - sloop" in await audience.ask("sloop")
    assert (await audience.ask("Done")).endswith("Until next time!")


async def doctor_remembers(audience: Audience) -> None:
    assert "You already told me your age, boat." in await audience.ask("/start")


async def links_lead_deeper(audience: Audience) -> None:
    name = audience.bot.username
    assert f"https://t.me/{name}?startgroup=check-this-out" in await audience.ask("/start")
    audience.ann.says("/start check-this-out")
    [[button]] = (await audience.hear())["reply_markup"]["inline_keyboard"]
    assert button["url"] == f"https://t.me/{name}?start=so-cool"
    assert "using-entities-here" in await audience.ask("/start so-cool")
    await audience.ask("/start using-entities-here")
    query = audience.ann.presses("keyboard-callback-data")
    assert (await audience.ask("/start using-keyboard-here")).startswith("Congratulations!")
    assert query not in audience.bot.queries


async def developer_hears_of_an_error(audience: Audience) -> None:
    developer = audience.person(DEVELOPER)
    assert "<code>7</code>" in await audience.ask("/start")
    audience.ann.says("/bad_command")
    assert "wrong_method_name" in (await developer.hears())["text"]


async def results_are_offered(audience: Audience) -> None:
    assert await audience.ask("/start") == "Hi!"
    results = await audience.ann.looks_up("tide")
    assert [result["title"] for result in results] == ["Caps", "Bold", "Italic"]
    assert results[0]["input_message_content"]["message_text"] == "TIDE"


async def option_is_chosen(audience: Audience) -> None:
    assert await audience.ask("/start") == "Please choose:"
    assert await audience.press("2") == "Selected option: 2"
    assert await audience.ask("/help") == "Use /start to test this bot."


async def routes_are_taken(audience: Audience) -> None:
    one, two, three, four = map(str, range(4))
    assert (await audience.ask("/start")).startswith("Start handler")
    assert (await audience.press(one)).startswith("First")
    assert (await audience.press(four)).startswith("Fourth")
    assert (await audience.press(three)).startswith("Third")
    assert (await audience.press(one)).startswith("Start handler")
    assert (await audience.press(two)).startswith("Second")
    assert (await audience.press(three)).startswith("Third")
    assert await audience.press(two) == "See you next time!"


async def family_is_described(audience: Audience) -> None:
    example = audience.module
    assert (await audience.ask("/start")).startswith("Hi, I'm Family Bot")
    assert (await audience.hear())["text"].startswith("You may choose")
    assert (await audience.press(example.ADDING_SELF)).startswith("Okay, please tell me about yourself.")
    assert (await audience.press(example.MALE)).startswith("Please select a feature")
    assert await audience.press(example.NAME) == "Okay, tell me."
    assert (await audience.ask("Ann")).startswith("Got it!")
    assert (await audience.press(str(example.END))).startswith("You may choose")
    assert "Name: Ann, Age: -" in await audience.press(example.SHOWING)
    assert (await audience.press(str(example.END))).startswith("You may choose")
    assert await audience.press(str(example.END)) == "See you around!"


async def tea_is_paid(audience: Audience) -> None:
    assert (await audience.ask("/start")).startswith("Use /shipping")
    for command, total in (("/shipping", 200), ("/noshipping", 100)):
        audience.ann.says(command)
        assert (await audience.hear())["invoice"]["currency"] == "USD"
        checkout = audience.ann.pays()
        assert (await audience.hear())["text"] == "Thank you for your payment."
        assert (checkout.state, checkout.total) == ("paid", total)


async def three_people_vote(audience: Audience) -> None:
    people = [audience.person(user_id, GROUP) for user_id in (8, 9, 10)]
    first = people[0]
    first.says("/poll")
    assert (await first.hears())["poll"]["question"] == "How are you?"
    for person in people:
        person.votes(0, 3)
        assert (await first.hears())["text"].endswith("feels Good and Great!")
    assert (await first.hears())["poll"]["is_closed"]
    first.says("/quiz")
    await first.hears()
    for person in people:
        person.votes(2)
    assert (await first.hears())["poll"]["is_closed"]
    assert (await audience.ask("/preview")).startswith("Press the button")
    audience.ann.sends(poll=POLL)
    assert (await audience.hear())["poll"]["question"] == "Tea?"


async def timer_beeps(audience: Audience) -> None:
    assert await audience.ask("/set soon") == "Usage: /set <seconds>"
    assert await audience.ask("/unset") == "You have no active timer."
    assert await audience.ask("/set 0.3") == "Timer successfully set!"
    assert (await audience.hear())["text"] == "Beep! 0.3 seconds are over!"


async def colour_is_picked(audience: Audience) -> None:
    assert (await audience.ask("/start")).startswith("Please press the button")
    colour = json.dumps({"hex": "#0000ff", "rgb": {"r": 0, "g": 0, "b": 255}})
    audience.ann.sends(web_app_data={"data": colour, "button_text": "Open the color picker!"})
    assert "<code>#0000ff</code>" in (await audience.hear())["text"]


async def health_is_told(audience: Audience) -> None:
    assert "/healthcheck" in await audience.ask("/start")


# A scene for each time that the example is started.
SCENES: Final[dict[str, tuple[Scene, ...]]] = {
    "arbitrarycallbackdatabot.py": (any_object_is_behind_a_button,),
    "chatmemberbot.py": (members_are_greeted,),
    "contexttypesbot.py": (clicks_are_counted,),
    "conversationbot.py": (professor_asks,),
    "conversationbot2.py": (doctor_learns,),
    "customwebhookbot/starlettebot.py": (health_is_told,),
    "deeplinking.py": (links_lead_deeper,),
    "echobot.py": (echo,),
    "errorhandlerbot.py": (developer_hears_of_an_error,),
    "inlinebot.py": (results_are_offered,),
    "inlinekeyboard.py": (option_is_chosen,),
    "inlinekeyboard2.py": (routes_are_taken,),
    "nestedconversationbot.py": (family_is_described,),
    "paymentbot.py": (tea_is_paid,),
    "persistentconversationbot.py": (doctor_learns, doctor_remembers),
    "pollbot.py": (three_people_vote,),
    "rawapibot.py": (raw_echo,),
    "timerbot.py": (timer_beeps,),
    "webappbot.py": (colour_is_picked,),
}
NOT_PLAYED: Final[dict[str, str]] = {
    "customwebhookbot/djangobot.py": "it needs Django; starlettebot.py is the same bot",
    "customwebhookbot/flaskbot.py": "it needs Flask; starlettebot.py is the same bot",
    "customwebhookbot/quartbot.py": "it needs Quart; starlettebot.py is the same bot",
    "passportbot.py": "it needs a Telegram Passport, which the simulator does not issue",
}
