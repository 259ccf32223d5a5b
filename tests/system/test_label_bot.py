"""The label bot of `examples/`: its real process and its job processes, used by simulated people."""

import asyncio
import base64
import hashlib
import hmac
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
import pytest

import fork_server
from databases import new_database
from label_bot.config import Config, MailServer, Services
from label_bot.label import can_print, draw_label
from label_bot.orders import Order, Orders, Parcel, new_order_id
from label_bot.texts import LabelTexts
from system.bots.scenes import GENEROUS
from system.label_sinks import HttpSink, MailSink
from system.purchases import says
from system.shops import EXAMPLES, FAST, TOKEN
from tidegate import BadInputError, Tidegate
from tidegate.clock import Clock
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.entities import Json
from tidegate.sim.telegram.http import TelegramServer

OURS: Final = ("TIDEGATE_", "TELEGRAM_", "LABEL_", "DATABASE_", "REDIS_URL")
ORDER: Final = "/order 2.5 kg; Jane Doe; Main St 1; 12345 Berlin"
TAKEN: Final = re.compile(r"Order (\w{8}) taken, your label will be ready in 1.2 minutes\.")
SECRET: Final = "a secret of the payments"
SOON: Final = 40.0  # seconds: a process of a busy machine starts, and a lease of 15 s runs out
clock: Final = Clock()


class LabelBot:
    """The bot in a folder of its own, and its users."""

    def __init__(self, server: TelegramServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.process: asyncio.subprocess.Process

    def person(self, number: int, language: str = "en") -> Person:
        bot = self.server.telegram.world.bot(TOKEN)
        assert bot is not None
        person = Person(self.server.telegram, bot, number)
        self.server.telegram.world.user(number).language_code = language
        return person

    @asynccontextmanager
    async def runs(self, *arguments: str, **variables: str) -> AsyncIterator[None]:
        """Run while the body does; its files stay. Its log is in bot.log."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        given = {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "TELEGRAM_API_URL": self.server.url,
            "TIDEGATE_STORE": str(self.folder / "tidegate.db"),
            "LABEL_SECONDS": "0.2",
            **FAST,
            **variables,
        }
        command = (sys.executable, "-m", "label_bot", *arguments)
        log = await asyncio.to_thread((self.folder / "bot.log").open, "ab")
        self.process = await fork_server.create_process(*command, cwd=EXAMPLES, env=kept | given, stderr=log)
        log.close()
        try:
            yield
        finally:
            if self.process.returncode is None:
                self.process.send_signal(signal.SIGTERM)
            await self.process.wait()

    async def log(self) -> str:
        return await asyncio.to_thread((self.folder / "bot.log").read_text)

    def pdf(self, message: Json) -> bytes:
        """The file of a message."""
        return self.server.telegram.world.files[message["document"]["file_id"]].content


@pytest.fixture
async def bot(tmp_path: Path) -> AsyncIterator[LabelBot]:
    async with TelegramServer(limits=GENEROUS) as server:
        yield LabelBot(server, tmp_path)


@pytest.fixture(scope="module")
async def running_bot(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LabelBot]:
    """A bot that several tests use, each with people of its own. Its carrier gives tracking numbers."""
    carrier = HttpSink(lambda body: {"tracking": f"CARRIER{body['id']}"})
    async with TelegramServer(limits=GENEROUS) as server, carrier.serving():
        bot = LabelBot(server, tmp_path_factory.mktemp("label_bot"))
        async with bot.runs(LABEL_SECONDS="0.05", LABEL_CARRIER_URL=carrier.url):
            yield bot


async def orders(person: Person, text: str = ORDER) -> str:
    """Order a label; return the id that the answer names."""
    answer = await says(person, text)
    taken = TAKEN.fullmatch(answer)
    assert taken is not None, answer
    return taken[1]


def texts_of(pdf: bytes) -> list[str]:
    return [found.decode("latin-1") for found in re.findall(rb"\((.*?)\) Tj", pdf)]


async def test_an_order_is_answered_at_once_and_its_label_comes_later(running_bot: LabelBot) -> None:
    ann = running_bot.person(1001)
    order = await orders(ann)
    label = await ann.hears(SOON)
    assert label["caption"] == f"The label of order {order}."
    assert label["document"]["file_name"] == f"label-{order}.pdf"
    pdf = running_bot.pdf(label)
    assert pdf.startswith(b"%PDF-")
    printed = {f"Order {order}", "Jane Doe", "Main St 1", "12345 Berlin", f"CARRIER{order}"}
    assert printed <= set(texts_of(pdf))
    assert await says(ann, "/orders") == f"{order}: Jane Doe, not paid yet"


async def test_the_bot_answers_in_the_language_of_the_user_and_explains(running_bot: LabelBot) -> None:
    ann, bea = running_bot.person(1101), running_bot.person(1102, "de")
    assert (await says(ann, "/start")).startswith("Hello, User 1101! I make shipping labels.")
    assert await says(ann, "hello") == "I know /order and /orders."
    assert (await says(ann, "/orders")).startswith("You have ordered nothing yet")
    assert (await says(ann, "/order 2 kg; Jane")).startswith("Write the weight and the address")
    assert (await says(ann, "/order 2 kg; Анна; Main St 1; 1 B")).startswith("I cannot print")
    assert "ist notiert" in await says(bea, "/order 2,5 kg; Bea; Hauptstraße 1; 12345 Berlin; express")
    label = await bea.hears(SOON)
    assert label["caption"].startswith("Das Etikett der Bestellung")
    assert "EXPRESS   2.5 kg" in texts_of(running_bot.pdf(label))


async def test_fifty_users_order_at_once_and_all_get_a_label_of_their_own(running_bot: LabelBot) -> None:
    people = [running_bot.person(2001 + number) for number in range(50)]
    ids = await asyncio.gather(*map(orders, people))
    labels = await asyncio.gather(*(person.hears(SOON) for person in people))
    assert len(set(ids)) == 50
    for order, label in zip(ids, labels, strict=True):
        assert f"Order {order}" in texts_of(running_bot.pdf(label))
    assert running_bot.server.telegram.report()["refused"] == 0


async def test_a_sixth_order_within_a_minute_is_not_taken_and_the_user_is_told_once(
    running_bot: LabelBot,
) -> None:
    ann, bob = running_bot.person(1201), running_bot.person(1202)
    for _ in range(8):
        ann.says(ORDER)
    await orders(bob)
    heard = [await ann.hears(SOON) for _ in range(11)]
    told = [message["text"] for message in heard if "text" in message]
    assert sum(TAKEN.fullmatch(text) is not None for text in told) == 5
    assert sum(text.startswith("That is a lot of orders") for text in told) == 1
    assert len(told) == 6
    assert await says(ann, "hello") == "I know /order and /orders."


async def test_what_is_not_configured_is_said_at_the_start(running_bot: LabelBot) -> None:
    await says(running_bot.person(1301), "hello")
    log = await running_bot.log()
    for line in ("payments are not taken: set", "no e-mails are sent: set", "no SMS are sent: set"):
        assert line in log
    assert TOKEN not in log


@pytest.mark.usefixtures("real_interpreters")
async def test_a_label_that_cannot_be_made_is_told_to_the_user(bot: LabelBot) -> None:
    refused = "http://127.0.0.1:9/"
    async with bot.runs(LABEL_CARRIER_URL=refused, LABEL_RETRIES="1", LABEL_PAUSE="0.1"):
        ann = bot.person(1001)
        order = await orders(ann)
        assert (await ann.hears(SOON))["text"].startswith(f"Sorry: the label of order {order} could not")
        assert "make_label) is dead: URLError" in await bot.log()


async def test_a_process_that_is_killed_after_the_order_leaves_the_label_to_the_next_one(
    bot: LabelBot,
) -> None:
    ann, bob = bot.person(1001), bot.person(1002)
    async with bot.runs(LABEL_SECONDS="3", TIDEGATE_JOB_WORKERS="1"):
        ids = [await orders(ann), await orders(bob)]
        bot.process.kill()
    async with bot.runs():
        for person, order in zip((ann, bob), ids, strict=True):
            while "document" not in (heard := await person.hears(SOON)):
                # An answer that was on its way when the process was killed may come again.
                assert TAKEN.fullmatch(heard["text"]), heard
            assert heard["document"]["file_name"] == f"label-{order}.pdf"
        assert await says(ann, "hello") == "I know /order and /orders."  # and not another label
        assert not bob.heard


async def test_the_blocking_bot_makes_labels_too(bot: LabelBot) -> None:
    async with bot.runs("--blocking"):
        ann = bot.person(1001)
        order = await orders(ann)
        assert (await ann.hears(SOON))["caption"] == f"The label of order {order}."


async def pay(url: str, body: dict[str, object], event: str = "evt_1", secret: str = SECRET) -> int:
    """Post a signed event, as soon as the bot listens; return the status."""
    content, now = msgspec.json.encode(body), str(int(clock.now()))
    signed = f"{event}.{now}.".encode() + content
    signature = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()
    headers = {"webhook-id": event, "webhook-timestamp": now, "webhook-signature": f"v1,{signature}"}
    async with clock.timeout(SOON), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.post(url, data=content, headers=headers) as answer:
                    return answer.status
            except aiohttp.ClientConnectorError:
                await clock.sleep(0.1)


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


async def test_a_payment_is_noted_and_told_by_mail_and_sms_once(bot: LabelBot) -> None:
    port, mails, sms = free_port(), MailSink(), HttpSink()
    url = f"http://127.0.0.1:{port}/hooks/payments"
    async with mails.serving(), sms.serving():
        services = {"LABEL_SMTP": mails.url, "LABEL_SMS_URL": sms.url, "LABEL_MAIL_FROM": "bot@example.org"}
        async with bot.runs(LABEL_PAYMENT_SECRET=SECRET, LABEL_PORT=port, **services):
            ann = bot.person(1001)
            order = await orders(ann, f"{ORDER}; ann@example.org; +49151234567")
            await ann.hears(SOON)
            assert await pay(url, {"order": order}, secret="another secret of 24") == 401
            assert await pay(url, {"order": order}) == 200
            assert await pay(url, {"order": order}) == 200  # the provider sends it again
            assert await pay(url, {"order": order}, "evt_2") == 200  # and a second one for the same order
            assert await pay(url, {"order": "NOSUCH00"}, "evt_3") == 200
            assert (await ann.hears(SOON))["text"] == f"Order {order} is paid. Thank you!"
            async with clock.timeout(SOON):
                while not (mails.mails and sms.bodies) or "evt_3 is for no order" not in await bot.log():
                    await clock.sleep(0.1)
            assert await says(ann, "/orders") == f"{order}: Jane Doe, paid"
    [mail] = mails.mails
    assert (mail["To"], mail["Subject"]) == ("ann@example.org", f"Order {order} is paid")
    assert mail["Message-ID"] == f"<order-{order}@example.org>"
    assert sms.bodies == [{"to": "+49151234567", "text": f"Order {order} is paid. Thank you!"}]
    assert not ann.heard


@pytest.mark.parametrize(
    ("text", "parcel"),
    [
        ("2.5 kg; Ann; A St 1; 1 B", Parcel(2.5, "Ann", "A St 1", "1 B")),
        ("2,5KG;Ann;A St 1;1 B;express", Parcel(2.5, "Ann", "A St 1", "1 B", "express")),
        (
            "1 kg; Ann; A St 1; 1 B; +491234567; a@b.org",
            Parcel(1.0, "Ann", "A St 1", "1 B", "standard", "a@b.org", "+491234567"),
        ),
        ("", None),
        ("Ann; A St 1; 1 B", None),
        ("1 kg; Ann; A St 1", None),
        ("1 kg; Ann; ; 1 B", None),
        ("0 kg; Ann; A St 1; 1 B", None),
        ("32 kg; Ann; A St 1; 1 B", None),
        ("1 kg; Ann; A St 1; 1 B; soon", None),
        ("1 kg; Ann; A St 1; 1 B; express; standard", None),
        ("1 kg; Ann\nBob; A St 1; 1 B", None),
        (f"1 kg; {'x' * 61}; A St 1; 1 B", None),
    ],
)
def test_an_order_is_read(text: str, parcel: Parcel | None) -> None:
    assert Parcel.parse(text) == parcel


def test_a_label_is_the_same_each_time_and_prints_latin_letters_without_a_font() -> None:
    order = Order("A1B2C3D4", 1, None, Parcel(1.0, "Zoë (2nd)", "Hauptstraße 1", "12345 Berlin"))
    assert draw_label(order, "TG1") == draw_label(order, "TG1") != draw_label(order, "TG2")
    assert can_print(order.parcel, None)
    cyrillic = order.parcel._replace(name="Анна")
    assert not can_print(cyrillic, None)
    assert can_print(cyrillic, Path("font.ttf"))


def test_an_order_survives_the_way_to_a_job() -> None:
    order = Order("A1B2C3D4", 1, "de", Parcel(1.0, "Ann", "A St 1", "1 B", email="a@b.org"))
    assert Order.unpacked(msgspec.msgpack.decode(msgspec.msgpack.encode(order.packed()))) == order


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_two_processes_give_no_number_twice_and_one_message_has_one_order(
    database: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database == "postgres":
        server = await asyncio.to_thread(request.getfixturevalue, "postgres_url")
        monkeypatch.setenv("DATABASE_URL", await new_database(server))
    drawn = iter([*["TAKEN000"] * 8, *(new_order_id() for _ in range(100))])
    monkeypatch.setattr("label_bot.orders.new_order_id", lambda: next(drawn))
    tables = [Orders(Tidegate(tmp_path / "tidegate.db")) for _ in range(2)]  # each with engines of its own
    for table in tables:
        await table.open()
    parcel = Parcel(1.0, "Ann", "A St 1", "1 B")
    causes = [f"1001:{number // 2}" for number in range(20)]  # each message twice
    made = await asyncio.gather(
        *(tables[at % 2].create(cause, 1001, None, parcel) for at, cause in enumerate(causes))
    )
    for table in tables:
        await table._gate.database.close()  # noqa: SLF001
    assert len({order.id for order in made}) == 10
    assert all(made[at].id == made[at + 1].id for at in range(0, 20, 2))


def test_settings_are_read_and_a_wrong_one_is_named_without_its_secret() -> None:
    mail = {"LABEL_SMTP": "smtps://me%40b.org:s%3Acret@mail.example.org"}
    assert Services.read(mail).mail == MailServer("mail.example.org", 465, True, "me@b.org", "s:cret")  # noqa: FBT003
    assert Services.read({"LABEL_SMTP": "smtp://localhost:25"}).mail == MailServer(
        "localhost",
        25,
        False,  # noqa: FBT003
        None,
        None,
    )
    for name, value in {
        "LABEL_SMTP": "https://me:secret@host",
        "LABEL_SECONDS": "soon secret",
        "LABEL_SMS_URL": "file:///etc/secret",
    }.items():
        with pytest.raises(BadInputError, match=name) as wrong:
            Services.read({name: value})
        assert "secret" not in str(wrong.value)
    with pytest.raises(BadInputError, match="set TELEGRAM_BOT_TOKEN"):
        Config.read({"TELEGRAM_BOT_TOKEN": "abc"})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('bye = "x"', "no such text"),
        ('taken = "{oder}"', "only .*order.* can be filled"),
        ('paid = "{"', "Single"),
    ],
)
def test_a_wrong_text_of_the_label_bot_is_named(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.toml"
    path.write_text(f"[en]\n{line}\n")
    with pytest.raises(BadInputError, match=reason):
        LabelTexts(path)
