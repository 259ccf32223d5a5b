"""The Bot API client on real connections: what it sends, knows without an answer, and hides."""

import asyncio
import logging
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from simulated import TOKEN
from tidegate.clock import Clock
from tidegate.delivery.bot_api import LARGEST_ANSWER, BotApiClient
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.errors import BadInputError
from tidegate.model import File, Rate
from tidegate.sim.telegram import Faults, Latency, Limits
from tidegate.sim.telegram.http import TelegramServer

LOOSE = Limits(bot=Rate(10_000, 1), private=Rate(10_000, 1), group=Rate(10_000, 1))
OK = b'{"ok":true,"result":true}'
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class StandstillClock(Clock):
    """Real time, with more of it gone than the timers know of."""

    stood_still = 0.0  # seconds

    def monotonic(self) -> float:
        return super().monotonic() + self.stood_still


class Client:
    """A `BotApi`, its calls to one address, and how often a request was written."""

    def __init__(self, api: BotApiClient, clock: Clock, url: str) -> None:
        self.api, self.clock, self.url = api, clock, url
        self.written = 0

    async def __call__(
        self,
        method: str = "getMe",
        *,
        seconds: float = 5.0,
        token: str = TOKEN,
        wait_for_upload: bool = True,
        on_left: Callable[[], None] | None = None,
        **params: object,
    ) -> ApiAnswer | NoAnswer:
        deadline = self.clock.monotonic() + seconds
        return await self.api.call(
            token,
            method,
            params,
            api_url=self.url,
            deadline=deadline,
            on_left=on_left,
            on_written=self._on_written,
            wait_for_upload=wait_for_upload,
        )

    async def result(self, method: str, **params: Any) -> Any:  # noqa: ANN401  (Telegram's)
        answer = await self(method, **params)
        assert isinstance(answer, ApiAnswer)
        assert answer.body is not None
        assert answer.body["ok"], answer
        return answer.body["result"]

    def _on_written(self) -> None:
        self.written += 1


@asynccontextmanager
async def client(url: str, *, timeout: float = 5.0, connections: int = 100) -> AsyncIterator[Client]:  # noqa: ASYNC109
    clock = Clock()
    api = BotApiClient(clock, timeout=timeout, connections=connections)
    try:
        yield Client(api, clock, url)
    finally:
        await api.close()


@asynccontextmanager
async def raw_server(handle: Handler) -> AsyncIterator[str]:
    """A server that does what it is told to a connection, and then closes it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    return head + await reader.readexactly(length)


def answering(status: str, body: bytes, *, length: bool = True) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        size = f"Content-Length: {len(body)}\r\n" if length else ""
        writer.write(f"HTTP/1.1 {status}\r\n{size}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()

    return handle


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read(-1)


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(limits=LOOSE) as running:
        yield running


@pytest.fixture
async def telegram(server: TelegramServer) -> AsyncIterator[Client]:
    async with client(server.url) as calls:
        yield calls


# What is sent


async def test_a_call_arrives_with_its_parameters_and_without_those_that_are_none(telegram: Client) -> None:
    markup = {"inline_keyboard": [[{"text": "Buy", "callback_data": "buy"}]]}
    message = await telegram.result(
        "sendMessage", chat_id=7, text="Grüße & more", reply_markup=markup, reply_parameters=None
    )
    assert (message["text"], message["reply_markup"]) == ("Grüße & more", markup)
    assert telegram.written == 1


async def test_an_error_of_telegram_is_an_answer(server: TelegramServer, telegram: Client) -> None:
    bot = server.telegram.world.bot(TOKEN)
    assert bot is not None
    server.telegram.world.add_private(bot, 7).blocked = True
    answer = await telegram("sendMessage", chat_id=7, text="x")
    assert isinstance(answer, ApiAnswer)
    assert answer.status == 403
    assert answer.body is not None
    assert answer.body["description"] == "Forbidden: bot was blocked by the user"


async def test_parameters_that_are_no_json_are_refused_in_words(telegram: Client) -> None:
    with pytest.raises(BadInputError, match="cannot be sent as JSON"):
        await telegram("sendMessage", chat_id=7, text=object())
    assert telegram.written == 0


# What is known when no answer comes


async def test_a_silent_server_has_got_it() -> None:
    async with raw_server(silent) as url, client(url, timeout=0.1) as calls:
        assert await calls() == NoAnswer(left=True, reason="timeout")
        assert calls.written == 1


async def test_a_server_that_reads_and_cuts_has_got_it() -> None:
    async def cut(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)

    async with raw_server(cut) as url, client(url) as calls:
        assert await calls() == NoAnswer(left=True, reason="disconnected")


async def test_a_server_that_cuts_in_the_middle_of_its_answer_has_got_it() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + OK)

    async with raw_server(cut) as url, client(url) as calls:
        assert await calls() == NoAnswer(left=True, reason="disconnected")


async def test_a_connection_cut_unread_counts_as_left_unless_nothing_was_written() -> None:
    """Which of the two it is depends on who is faster; what may have arrived is never called unsent."""

    async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with raw_server(cut) as url, client(url) as calls:
        for _ in range(20):
            before = calls.written
            answer = await calls()
            assert isinstance(answer, NoAnswer)
            assert answer.left or calls.written == before


async def test_what_speaks_no_http_may_have_got_it() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

    async with raw_server(babble) as url, client(url) as calls:
        assert await calls() == NoAnswer(left=True, reason="not_http")


async def test_where_nobody_listens_nothing_left() -> None:
    async with raw_server(silent) as url:
        pass
    async with client(url) as calls:
        assert await calls() == NoAnswer(left=False, reason="connect")
        assert calls.written == 0


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://nowhere.invalid", "dns"),
        ("no address", "address"),
        ("ftp://127.0.0.1", "address"),
        ("http://127.0.0.1:99999", "address"),
        ("http://[", "address"),
    ],
)
async def test_where_no_address_leads_nothing_left(url: str, reason: str) -> None:
    async with client(url) as calls:
        assert await calls(seconds=30) == NoAnswer(left=False, reason=reason)


async def test_where_tls_fails_nothing_left() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with raw_server(plain) as url, client(url.replace("http:", "https:")) as calls:
        assert await calls() == NoAnswer(left=False, reason="tls")
        assert calls.written == 0


async def test_after_its_deadline_nothing_is_sent(server: TelegramServer, telegram: Client) -> None:
    late = NoAnswer(left=False, reason="late")
    assert await telegram(seconds=0) == late
    assert await telegram("sendPhoto", seconds=-1, chat_id=7, photo=File(content=b"x")) == late
    assert server.telegram.request_log.report()["requests"] == 0
    assert telegram.written == 0


async def test_a_process_that_stood_still_beyond_the_deadline_before_it_wrote_is_late(
    server: TelegramServer,
) -> None:
    """Its timer has not rung yet: the loop has had no time to look."""
    clock = StandstillClock()
    async with aiohttp.ClientSession() as session:

        async def lend() -> aiohttp.ClientSession:
            clock.stood_still += 10
            return session

        api = BotApiClient(clock, lend=lend)
        calls = Client(api, clock, server.url)
        assert await calls(seconds=5) == NoAnswer(left=False, reason="late")
        assert isinstance(await calls(seconds=15), ApiAnswer)
        await api.close()
    assert server.telegram.request_log.report()["requests"] == 1
    assert calls.written == 1


async def test_a_deadline_may_be_far(telegram: Client) -> None:
    assert isinstance(await telegram(seconds=math.inf), ApiAnswer)


async def test_who_waits_for_a_connection_beyond_the_deadline_is_late() -> None:
    reached = asyncio.Event()
    requests = 0

    async def count(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        nonlocal requests
        await read_request(reader)
        requests += 1
        reached.set()
        await reader.read(-1)

    async with raw_server(count) as url, client(url, timeout=5, connections=1) as calls:
        first = asyncio.create_task(calls())
        await reached.wait()
        assert await calls(seconds=0.05) == NoAnswer(left=False, reason="late")
        await calls.api.close()
        assert await first == NoAnswer(left=True, reason="disconnected")
        assert requests == 1


async def test_a_kept_connection_that_is_cut_counts_as_left_and_the_post_is_not_repeated() -> None:
    requests = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        for _ in range(2):
            await read_request(reader)
            requests += 1
            if requests % 2 == 1:  # kept alive, and cut at the second request
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n" + OK)

    async with raw_server(once) as url, client(url) as calls:
        assert await calls() == ApiAnswer(200, {"ok": True, "result": True})
        assert await calls() == NoAnswer(left=True, reason="disconnected")
        assert requests == 2


async def test_after_close_nothing_leaves(telegram: Client) -> None:
    await telegram.api.close()
    assert await telegram() == NoAnswer(left=False, reason="closed")


async def test_a_call_that_is_cancelled_is_cancelled_and_the_next_one_works(
    server: TelegramServer, telegram: Client
) -> None:
    server.telegram.faults = Faults(latency_in=Latency(5000, 5000))
    call = asyncio.create_task(telegram())
    while not telegram.written:
        await telegram.clock.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    server.telegram.faults = Faults()
    assert isinstance(await telegram(), ApiAnswer)


# Answers that are not Telegram's


@pytest.mark.parametrize(
    "body",
    [b'{"ok":tru', b"<html>", b"[1]", b'{"ok":1}', b"", b'{"ok":true,"x":"\xff"}', b'{"ok":' + b"[" * 9999],
)
async def test_what_is_not_telegrams_json_has_no_body(body: bytes) -> None:
    async with raw_server(answering("200 OK", body)) as url, client(url) as calls:
        assert await calls() == ApiAnswer(200, None)


async def test_a_page_of_a_proxy_has_a_status_and_no_body() -> None:
    async with raw_server(answering("502 Bad Gateway", b"<html>502</html>")) as url, client(url) as calls:
        assert await calls() == ApiAnswer(502, None)


@pytest.mark.parametrize("length", [True, False])
async def test_a_huge_answer_is_not_read_to_its_end(*, length: bool) -> None:
    body = b" " * (LARGEST_ANSWER + 1) + OK
    async with raw_server(answering("200 OK", body, length=length)) as url, client(url) as calls:
        assert await calls() == ApiAnswer(200, None)


async def test_an_answer_without_a_length_is_read_to_its_end() -> None:
    async with raw_server(answering("200 OK", OK, length=False)) as url, client(url) as calls:
        assert await calls() == ApiAnswer(200, {"ok": True, "result": True})


async def test_a_redirect_is_not_followed() -> None:
    async with raw_server(answering("302 Found\r\nLocation: /elsewhere", b"")) as url, client(url) as calls:
        assert await calls() == ApiAnswer(302, None)


# Files


@pytest.fixture
def picture(tmp_path: Path) -> File:
    path = tmp_path / 'Grüße "1".bin'
    path.write_bytes(bytes(range(256)) * 4_000)
    return File(path=str(path))


def stored(server: TelegramServer) -> list[tuple[str, int]]:
    return [(file.name, len(file.content)) for file in server.telegram.world.files.values()]


async def test_a_file_on_disk_is_uploaded_once_and_then_named(
    server: TelegramServer, telegram: Client, picture: File
) -> None:
    first = await telegram.result("sendDocument", chat_id=7, document=picture, caption="1", reply_markup={})
    second = await telegram.result("sendDocument", chat_id=8, document=picture, caption="2")
    assert stored(server) == [("Grüße %221%22.bin", 1_024_000)]
    assert next(iter(server.telegram.world.files.values())).content == bytes(range(256)) * 4_000
    assert first["document"]["file_id"] == second["document"]["file_id"]
    assert (first["caption"], second["caption"]) == ("1", "2")
    assert telegram.written == 2


async def test_a_file_that_changed_is_another_file(
    server: TelegramServer, telegram: Client, picture: File
) -> None:
    await telegram.result("sendDocument", chat_id=7, document=picture)
    assert picture.path is not None
    await asyncio.to_thread(Path(picture.path).write_bytes, b"new")
    await telegram.result("sendDocument", chat_id=7, document=picture)
    assert [size for _, size in stored(server)] == [1_024_000, 3]


async def test_content_name_kind_and_bot_tell_files_apart(server: TelegramServer, telegram: Client) -> None:
    for _ in range(2):
        await telegram.result("sendPhoto", chat_id=7, photo=File(content=b"x"))
        await telegram.result("sendDocument", chat_id=7, document=File(content=b"x"))
        await telegram.result("sendDocument", chat_id=7, document=File(content=b"x", name="x.txt"))
        await telegram.result("sendDocument", chat_id=7, document=File(content=b"y"))
        await telegram.result("sendPhoto", chat_id=7, photo=File(content=b"x"), token="43:other")
    assert len(stored(server)) == 5


async def test_a_broadcast_of_a_photo_uploads_it_once(server: TelegramServer, telegram: Client) -> None:
    server.telegram.faults = Faults(latency_in=Latency(1, 20))
    photo = File(content=b"x" * 700_000)
    messages = await asyncio.gather(
        *(telegram.result("sendPhoto", chat_id=chat, photo=photo) for chat in range(1, 51))
    )
    assert len({message["chat"]["id"] for message in messages}) == 50
    assert [size for _, size in stored(server)] == [700_000]


async def test_an_album_uploads_its_files_and_leaves_names_as_they_are(
    server: TelegramServer, telegram: Client, picture: File
) -> None:
    known = (await telegram.result("sendPhoto", chat_id=7, photo=File(content=b"known")))["photo"][0]
    media = [
        {"type": "photo", "media": known["file_id"], "caption": "0"},
        {"type": "photo", "media": File(content=b"new")},
        {"type": "photo", "media": picture},
        {"type": "photo", "media": File(content=b"known")},
    ]
    for _ in range(2):
        album = await telegram.result("sendMediaGroup", chat_id=7, media=media)
        assert [message["photo"][0]["file_size"] for message in album] == [5, 3, 1_024_000, 5]
    assert sorted(size for _, size in stored(server)) == [3, 5, 1_024_000]


async def test_a_file_id_that_telegram_rejects_is_forgotten_and_the_file_uploaded_again(
    server: TelegramServer, telegram: Client
) -> None:
    photo = File(content=b"x")
    await telegram.result("sendPhoto", chat_id=7, photo=photo)
    server.telegram.world.files.clear()
    await asyncio.gather(*(telegram.result("sendPhoto", chat_id=chat, photo=photo) for chat in range(1, 9)))
    assert len(stored(server)) == 1
    assert telegram.written == 9  # once for each call, though the photo went twice


async def test_who_waits_for_the_upload_of_another_beyond_the_deadline_is_late(
    server: TelegramServer, telegram: Client
) -> None:
    server.telegram.faults = Faults(latency_in=Latency(200, 200))
    photo = File(content=b"x")
    first = asyncio.create_task(telegram("sendPhoto", chat_id=7, photo=photo))
    while not telegram.written:
        await telegram.clock.sleep(0)
    late = await telegram("sendPhoto", seconds=0.05, chat_id=8, photo=photo)
    assert late == NoAnswer(left=False, reason="late")
    assert isinstance(await first, ApiAnswer)


async def test_a_queued_call_whose_file_another_one_uploads_goes_back_at_once(
    server: TelegramServer, telegram: Client
) -> None:
    server.telegram.faults = Faults(latency_in=Latency(200, 200))
    photo = File(content=b"x")
    first = asyncio.create_task(telegram("sendPhoto", chat_id=7, photo=photo))
    while not telegram.written:
        await telegram.clock.sleep(0)
    back = await telegram("sendPhoto", wait_for_upload=False, chat_id=8, photo=photo)
    assert back == NoAnswer(left=False, reason="uploading", wait=1.0)
    assert not first.done()
    assert isinstance(await first, ApiAnswer)
    assert isinstance(
        await telegram("sendPhoto", wait_for_upload=False, chat_id=8, photo=photo), ApiAnswer
    )  # by its file_id now


async def test_a_dozen_fifos_given_as_files_block_no_upload(telegram: Client, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = File(path=str(tmp_path / "pipe"))
    refused = await asyncio.gather(
        *(telegram("sendPhoto", chat_id=chat, photo=pipe) for chat in range(1, 13)), return_exceptions=True
    )
    assert {(type(error), "not a regular file" in str(error)) for error in refused} == {(BadInputError, True)}
    await telegram.result("sendPhoto", chat_id=13, photo=File(content=b"a picture"))


async def test_an_upload_that_is_cancelled_after_its_first_byte_has_left_but_was_not_written() -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    async def read_a_little(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readexactly(100)
        begun.set()
        await asyncio.Event().wait()

    async with raw_server(read_a_little) as url, client(url) as calls:
        call = asyncio.create_task(
            calls("sendDocument", on_left=left.set, chat_id=7, document=File(content=bytes(30_000_000)))
        )
        await begun.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert left.is_set()
        assert calls.written == 0


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/nowhere/at.all", "No such file"),
        ("/", "Is a directory|not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("a\0b", "no valid path"),
        (None, "neither"),
    ],
)
async def test_a_file_that_cannot_be_read_is_said_so(telegram: Client, path: str | None, reason: str) -> None:
    with pytest.raises(BadInputError, match=reason):
        await telegram("sendPhoto", chat_id=7, photo=File(path=path))


async def test_a_file_that_shrinks_while_it_is_sent_is_not_passed_off_as_whole(tmp_path: Path) -> None:
    path = tmp_path / "large"
    await asyncio.to_thread(path.write_bytes, b"x" * 20_000_000)

    async def shrink(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.to_thread(path.write_bytes, b"y")
        await reader.read(-1)

    async with raw_server(shrink) as url, client(url) as calls:
        answer = await calls("sendDocument", chat_id=7, document=File(path=str(path)))
        assert answer == NoAnswer(left=True, reason="file_changed")
        assert calls.written == 0


async def test_a_large_upload_may_take_longer_than_the_timeout_as_long_as_it_moves() -> None:
    size = 30_000_000  # more than the kernel's buffers take

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(14):
            await Clock().sleep(0.05)
            await reader.readexactly(1_000_000)
        await reader.readexactly(size - 14_000_000)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n" + OK)

    async with raw_server(slow) as url, client(url, timeout=0.5) as calls:
        answer = await calls("sendDocument", chat_id=7, document=File(content=bytes(size)))
        assert isinstance(answer, ApiAnswer)


# What is hidden


async def test_the_token_appears_nowhere(caplog: pytest.LogCaptureFixture, picture: File) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    secret = "42:tell-nobody"

    async def cut(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)

    handlers: Mapping[str, Handler] = {
        "cut": cut,
        "silent": silent,
        "page": answering("502 Bad Gateway", b"<html>"),
        "babble": answering("what", b""),
    }
    said: list[str] = []
    for handler in handlers.values():
        async with raw_server(handler) as url, client(url, timeout=0.05) as calls:
            said += [repr(await calls(token=secret)), repr(calls.api)]
            said.append(repr(await calls("sendDocument", token=secret, document=picture)))
    for url in ("http://nowhere.invalid", "http://127.0.0.1:1", "https://127.0.0.1:1", "no address"):
        async with client(url) as calls:
            said.append(repr(await calls(token=secret)))
            for wrong in (object(), File(path="/nowhere")):
                with pytest.raises(BadInputError) as caught:
                    await calls("sendPhoto", token=secret, photo=wrong)
                said.append("".join(map(repr, (caught.value, caught.value.__cause__))))
    asyncio.get_running_loop().set_debug(False)
    assert len(said) == 24
    assert "tell-nobody" not in "".join(said) + caplog.text
