"""What the public examples of aiogram promise, and which of them cannot keep it here."""

from typing import Final

from system.bots.audience import ANN, GROUP, Audience, Scene


async def echo(audience: Audience) -> None:
    assert (await audience.ask("/start")).startswith("Hello, <b>User 7")
    assert await audience.ask("high water") == "high water"
    audience.ann.sends_photo(b"picture", caption="me")
    copy = await audience.hear()
    assert (copy["caption"], "photo" in copy) == ("me", True)
    audience.ann.shares_contact("+441")
    assert (await audience.hear())["contact"]["phone_number"] == "+441"


async def filter_knows_its_word(audience: Audience) -> None:
    assert await audience.ask("goodbye") == "What?"
    audience.ann.says("hello")  # is handled, in silence
    assert await audience.ask("again") == "What?"
    assert not audience.ann.heard


async def filter_gives_a_name(audience: Audience) -> None:
    assert await audience.ask("goodbye") == "What?"
    assert await audience.ask("Hello") == 'Hello, <a href="tg://user?id=7">User 7</a>!'


async def errors_are_handled(audience: Audience) -> None:
    assert (await audience.ask("/age")).startswith("Error caught: InvalidAge(&#x27;No age provided.")
    assert "should be a number" in await audience.ask("/age old")
    assert await audience.ask("/age 42") == "Your age is 42"
    audience.ann.says("/name")  # is an error for the log alone
    assert await audience.ask("/name Ann") == "Your name is Ann"


async def form_is_filled_in(audience: Audience) -> None:
    assert await audience.ask("/start") == "Hi there! What's your name?"
    assert (await audience.ask("Ann")).startswith("Nice to meet you, Ann!")
    assert await audience.ask("perhaps") == "I don't understand you :("
    assert (await audience.ask("yes")).startswith("Cool!")
    assert (await audience.ask("Python")).startswith("Python, you say?")
    summary = "I'll keep in mind that, Ann, you like to write bots with Python."
    assert (await audience.hear())["text"] == summary
    await audience.ask("/start")
    assert await audience.ask("/cancel") == "Cancelled."


async def quiz_is_won(audience: Audience) -> None:
    assert (await audience.ask("/start")).startswith("Hi! This is a quiz bot.")
    assert await audience.ask("/quiz") == "Welcome to the quiz!"
    assert (await audience.hear())["text"] == "What is the capital of France?"
    for city, country in (
        ("Paris", "Spain"),
        ("Madrid", "Germany"),
        ("Berlin", "England"),
        ("London", "Italy"),
    ):
        assert await audience.ask(city) == f"What is the capital of {country}?"
    assert "Correct: 5" in await audience.ask("Rome")


async def scenes_follow_each_other(audience: Audience) -> None:
    assert (await audience.ask("hi")).startswith("Start demo?")
    assert await audience.ask("demo") == "Hi there! What's your name?"
    assert await audience.ask("Ann") == "Nice to meet you, Ann!"
    assert (await audience.hear())["text"] == "Did you like to write bots?"
    assert await audience.ask("yes") == "Cool! I'm too!"
    assert (await audience.hear())["text"] == "What language do you prefer?"
    assert (await audience.ask("python")).startswith("Python, you say?")
    summary = "I'll keep in mind that, Ann, you like to write bots with python."
    assert (await audience.hear())["text"] == summary


async def each_kind_of_update_is_handled(audience: Audience) -> None:
    assert await audience.ask("/start") == "Hello, <b>User 7</b>!"
    query = audience.ann.presses("*")
    audience.ann.edits("/start now")
    assert (await audience.hear())["text"] == "Message was edited, Big Brother watches you"
    assert query not in audience.bot.queries
    guest = audience.person(8, GROUP)
    guest.joins()
    assert (await guest.hears())["text"] == "Member <code>8</code> was changed from left to member"


async def payment_is_refunded(audience: Audience) -> None:
    audience.ann.says("/start")
    assert (await audience.hear())["invoice"]["total_amount"] == 42
    checkout = audience.ann.pays()
    assert (await audience.hear())["text"] == "Thanks. Your payment has been refunded."
    assert checkout.state == "refunded"


async def greeting_was_sent(audience: Audience) -> None:
    assert (await audience.hear())["text"] == "Hello, World!"


async def web_app_is_offered(audience: Audience) -> None:
    assert "/webview" in await audience.ask("/start")
    assert audience.bot.profile.menu_buttons[ANN]["text"] == "Open Menu"
    audience.ann.says("/webview")
    [[button]] = (await audience.hear())["reply_markup"]["inline_keyboard"]
    assert button["web_app"]["url"].endswith("/demo")


SCENES: Final[dict[str, Scene]] = {
    "context_addition_from_filter.py": filter_gives_a_name,
    "echo_bot.py": echo,
    "echo_bot_webhook.py": echo,
    "error_handling.py": errors_are_handled,
    "finite_state_machine.py": form_is_filled_in,
    "multi_file_bot/bot.py": echo,
    "own_filter.py": filter_knows_its_word,
    "quiz_scene.py": quiz_is_won,
    "scene.py": scenes_follow_each_other,
    "specify_updates.py": each_kind_of_update_is_handled,
    "stars_invoice.py": payment_is_refunded,
    "web_app/main.py": web_app_is_offered,
    "without_dispatcher.py": greeting_was_sent,
}
NOT_PLAYED: Final[dict[str, str]] = {
    "echo_bot_webhook_ssl.py": "it needs a certificate, and differs from echo_bot_webhook.py in nothing else",
    "multibot.py": "it does not start with aiogram 3.7 or later: Bot(parse_mode=…) is gone",
}
