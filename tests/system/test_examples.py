"""The shops of `examples/`, and the bots of two how-tos: their real code, visited by simulated people."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

import shop_aiogram.bot
import shop_ptb.bot
from shop.book import Book
from shop.config import BadConfigError
from shop.texts import read_texts
from system.bots.scenes import GENEROUS
from system.killing import asked
from system.purchases import fill_cart, order, presses, says
from system.shops import TOKEN, Street
from system.snippets import blocks, programs, read, run
from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.sim.telegram import Limits
from tidegate.sim.telegram.http import TelegramServer

clock = Clock()


@pytest.fixture(params=["aiogram", "ptb"])
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of a program are made."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def street(library: str, tmp_path: Path) -> AsyncIterator[Street]:
    async with TelegramServer(limits=GENEROUS) as server:
        yield Street(server, tmp_path, library)


@pytest.fixture
async def strict_street(library: str, tmp_path: Path) -> AsyncIterator[Street]:
    """At Telegram's limits."""
    async with TelegramServer(limits=Limits()) as server:
        yield Street(server, tmp_path, library)


async def test_somebody_looks_around_fills_a_cart_and_orders(street: Street) -> None:
    ann = street.person(1001)
    async with street.shop():
        assert await says(ann, "/start") == "Welcome to the harbour shop, User 1001! What would you like?"
        assert ann.buttons() == ["show:tea", "show:coffee", "show:biscuits", "cart"]

        card = await presses(ann, "show:tea")
        assert card["caption"] == "Tea, 4.50 €\nFrom the hills, 100 g."
        assert street.content(card).startswith(b"\x89PNG")

        ann.presses("buy:tea")
        cart = await presses(ann, "cart")
        assert cart["text"] == "Your cart:\n1 x Tea, 4.50 €\nTogether 4.50 €."
        changed = await presses(ann, "more:tea")
        assert changed["message_id"] == cart["message_id"]
        assert changed["text"] == "Your cart:\n2 x Tea, 9.00 €\nTogether 9.00 €."

        assert (await presses(ann, "checkout"))["text"].startswith("Where shall we send it?")
        assert await says(ann, "Harbour Street 1") == "Who will receive it?"
        assert await says(ann, "Ann") == "To Ann, Harbour Street 1:\n2 x Tea, 9.00 €\nTogether 9.00 €."
        assert (await presses(ann, "confirm"))["text"].startswith("Thank you! Your order is number 1")

        receipt = await ann.hears()
        assert receipt["document"]["file_name"] == "order-1.txt"
        assert street.content(receipt).decode().endswith("\n\n2 x Tea, 9.00 €\nTogether 9.00 €.\n")
        assert (await presses(ann, "fewer:tea"))["text"] == "Your cart is empty."


async def test_an_order_can_be_thought_over(street: Street) -> None:
    ann = street.person(1001)
    async with street.shop():
        await fill_cart(ann)
        await presses(ann, "checkout")
        assert (await says(ann, "/cancel")).startswith("Nothing was ordered")
        await presses(ann, "checkout")
        await says(ann, "Harbour Street 1")
        await says(ann, "Ann")
        assert (await presses(ann, "cancel"))["text"].startswith("Nothing was ordered")
        assert await says(ann, "/orders") == "You have not ordered anything yet."
        assert (await says(ann, "hello")).startswith("I did not understand that.")
        assert (await presses(ann, "fewer:tea"))["text"] == "Your cart:\n1 x Tea, 4.50 €\nTogether 4.50 €."
        assert (await presses(ann, "fewer:tea"))["text"] == "Your cart is empty."


async def test_news_reach_everybody_but_who_blocked_the_bot_and_is_marked(street: Street) -> None:
    ann, bob = street.person(1001), street.person(1002)
    async with street.shop():
        for person in (ann, bob):
            await says(person, "/start")
        bob.blocks()
        assert await says(street.owner, "/news {Fresh} tea!\nFrom the hills.") == "On its way to 2 customers."
        assert (await ann.hears())["text"] == "{Fresh} tea!\nFrom the hills."
        end = await street.owner.hears()
        assert end["text"] == "The news has reached 1 customers; 1 are gone."
        assert (await says(street.owner, "/stats")).startswith("0 orders, 2 customers, 1 gone.\n")
        assert await says(street.owner, "/news Again") == "On its way to 1 customers."
        assert (await street.owner.hears())["text"] == "The news has reached 1 customers; 0 are gone."

        bob.unblocks()
        await says(bob, "/start")
        assert (await says(street.owner, "/stats")).startswith("0 orders, 2 customers, 0 gone.\n")
    assert not bob.heard


async def test_strangers_cannot_use_what_is_the_owners(street: Street) -> None:
    ann, bob = street.person(1001), street.person(1002)
    async with street.shop():
        await says(bob, "/start")
        assert (await says(ann, "/news Free tea!")).startswith("I did not understand that.")
        assert (await says(ann, "/stats")).startswith("I did not understand that.")
        assert (
            await says(street.owner, "/news") == "Write the news after the command: /news We have fresh tea."
        )
    assert not bob.heard


async def test_news_go_on_after_a_restart_and_nobody_hears_them_twice(street: Street) -> None:
    people = [street.person(number) for number in range(1001, 1031)]
    book = await asyncio.to_thread(Book, street.folder / "shop.db")
    for person in people:
        await book.welcome(person.id, "Somebody")
    slow = {"TIDEGATE_BOT_RATE": "10/0.1"}
    async with street.shop(**slow):
        await says(street.owner, "/news Fresh tea!")
        await people[10].hears()
    before = sum(person.last is not None for person in people)
    async with street.shop(**slow):
        assert (await street.owner.hears())["text"] == "The news has reached 30 customers; 0 are gone."
    log = street.server.telegram.request_log.log
    told = Counter(entry.chat_id for entry in log if entry.text == "Fresh tea!")
    assert before < 30
    assert set(told.values()) == {1}
    assert len(told) == 30


async def test_texts_and_goods_come_from_another_file(street: Street) -> None:
    texts = street.folder / "texts.toml"
    await asyncio.to_thread(
        texts.write_text,
        '[texts]\ngreeting = "Ahoy {name}"\n\n'
        '[products.rum]\nname = "Rum"\nabout = "Old."\nprice = 1990\ncolour = "#663300"\n',
    )
    ann = street.person(1001)
    async with street.shop(SHOP_TEXTS=str(texts)):
        assert await says(ann, "/start") == "Ahoy User 1001"
        assert ann.buttons() == ["show:rum", "cart"]
        assert (await presses(ann, "show:rum"))["caption"] == "Rum, 19.90 €\nOld."


async def test_nothing_is_refused_at_telegrams_limits(strict_street: Street) -> None:
    everybody = [strict_street.person(number) for number in range(1001, 1013)]
    async with strict_street.shop(TIDEGATE_BOT_RATE="", TIDEGATE_CHAT_RATE="", TIDEGATE_GROUP_RATE=""):
        for person in everybody:
            person.says("/start")
        for person in everybody:
            await person.hears()
            person.presses("show:tea")  # a second has not passed
        for person in everybody:
            assert "photo" in await person.hears()
    assert strict_street.refused == 0
    assert strict_street.server.telegram.report()["accepted"] == 24


async def test_a_cart_that_is_clicked_fast_ends_up_right(library: str, tmp_path: Path) -> None:
    async with TelegramServer(limits=Limits(private=Rate(1, 0.2))) as server:
        street = Street(server, tmp_path, library)
        ann = street.person(1001)
        async with street.shop(TIDEGATE_CHAT_RATE="1/0.2"):
            await fill_cart(ann)
            for _ in range(4):
                ann.presses("more:tea")
            seen = [await ann.hears()]
            while "6 x Tea" not in seen[-1]["text"]:
                seen.append(await ann.hears())
        assert len({message["message_id"] for message in seen}) == 1
        assert not ann.heard
        assert street.refused == 0


@pytest.mark.usefixtures("real_interpreters")
async def test_what_was_ordered_before_a_restart_is_remembered_and_its_receipt_arrives(
    library: str, tmp_path: Path
) -> None:
    async with TelegramServer(limits=Limits(private=Rate(1, 0.2))) as server:
        street = Street(server, tmp_path, library)
        ann = street.person(1001)
        async with street.interrupted_shop(TIDEGATE_CHAT_RATE="1/0.2", TIDEGATE_REPLY_BURST="1"):
            await fill_cart(ann)
            assert (await order(ann)).startswith("Thank you!")
            while not await asked(street.store, "SELECT 1 FROM messages WHERE state = 'queued'"):
                await clock.sleep(0.01)
        assert not ann.heard

        async with street.shop(TIDEGATE_CHAT_RATE="1/0.2"):
            assert (await ann.hears())["document"]["file_name"] == "order-1.txt"
            assert (await says(ann, "/orders")).startswith("Your orders:\n1: ")
        assert street.refused == 0


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("main", [shop_aiogram.bot.main, shop_ptb.bot.main])
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        (
            "TELEGRAM_BOT_TOKEN",
            "",
            "set TELEGRAM_BOT_TOKEN to your bot's token, from @BotFather: 123456:ABC-…",
        ),
        (
            "TELEGRAM_BOT_TOKEN",
            "secret",
            "set TELEGRAM_BOT_TOKEN to your bot's token, from @BotFather: 123456:ABC-…",
        ),
        ("SHOP_OWNER", "me", "set SHOP_OWNER to the owner's number, from @userinfobot: 1234567"),
        (
            "SHOP_TEXTS",
            "nowhere.toml",
            "the texts in nowhere.toml cannot be read: .* No such file or directory.*",
        ),
        (
            "SHOP_DATABASE",
            "no/shop.db",
            "the database no/shop.db cannot be used: unable to open database file",
        ),
        ("TIDEGATE_CHAT_RATE", "fast", "TIDEGATE_CHAT_RATE 'fast' is not a limit: .*"),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    main: Callable[[], None],
    variable: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "42:shop")
    monkeypatch.setenv("SHOP_OWNER", "1")
    monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit, match=f"^shop: {said}$"):
        main()


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ('[texts]\ngreetings = "Hi"', "there is no text called 'greetings': see texts.toml"),
        ('[texts]\ngreeting = "Hi {nome}"', "the text 'greeting' cannot have {nome} filled in"),
        ('[texts]\ngreeting = "Hi {"', "the text 'greeting' cannot be used: .*"),
        ('[products.rum]\nname = "Rum"', "each product has a name, an about, a price and a colour"),
        ("[texts", "the texts in .* cannot be read: .*"),
    ],
)
def test_texts_that_would_fail_before_a_customer_are_not_taken(file: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.toml"
    path.write_text(file, "utf-8")
    with pytest.raises(BadConfigError, match=f"^{said}$"):
        read_texts(path)


PAGES = {"aiogram": "stop-429s-in-an-aiogram-bot.md", "ptb": "stop-429s-in-a-ptb-bot.md"}


async def test_the_bot_of_the_howto_is_refused_until_it_has_the_three_lines(
    library: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = await asyncio.to_thread(programs, PAGES[library])
    # So long a window that the second answer is refused however slowly it is sent.
    async with TelegramServer(limits=Limits(burst=1, private=Rate(1, 3600))) as server:
        street = Street(server, workplace, library)
        ann = street.person(1001)
        async with run(before, TOKEN, server):
            ann.says("/ferries")
            assert (await ann.hears())["text"] == "06:10 Rye"
            while not street.refused:
                await clock.sleep(0.01)
        assert not ann.heard

    monkeypatch.setenv("TIDEGATE_CHAT_RATE", "1/0.3")
    monkeypatch.setenv("TIDEGATE_REPLY_BURST", "1")
    async with TelegramServer(limits=Limits(burst=1, private=Rate(1, 0.3))) as server:
        street = Street(server, workplace, library)
        ann = street.person(1001)
        async with run(after, TOKEN, server):
            ann.says("/ferries")
            heard = [(await ann.hears())["text"] for _ in range(3)]
        assert heard == ["06:10 Rye", "07:40 Hythe", "09:00 Dover"]
        assert street.refused == 0


def test_what_the_howtos_show_is_python(library: str) -> None:
    for block in blocks(PAGES[library]):
        read(block, PAGES[library])
