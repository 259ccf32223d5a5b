"""Every command on a store in Redis, whose address holds a password that nothing shows."""

import asyncio
import io
import json
import logging
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from redis import Redis

import fork_server
from system.operators import PATIENCE, TIDEGATE, TOKEN, Desk, environment, telegram
from tidegate import Tidegate
from tidegate.bots import registry
from tidegate.bots.encryption import TokenCipher, new_key
from tidegate.bots.registry import TELEGRAM
from tidegate.cli import main
from tidegate.clock import Clock
from tidegate.errors import BadInputError, WrongKeyError
from tidegate.model import BotId
from tidegate.ops.reports import explain, explain_many
from tidegate.outbox.port import StoreHealth
from tidegate.settings import Settings
from tidegate.stores.redis.bots import RedisBotStore
from tidegate.stores.redis.connection import RedisPyConnection
from tidegate.stores.redis.operator import tell_health

Result = TypeVar("Result")
KEY = new_key()
chats = count(1_000_001)  # each test has chats of its own: they share a Telegram


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with telegram() as url:
        yield url


@pytest.fixture
def url(redis_url: str) -> Iterator[str]:
    """An empty database of this module's own, with a password."""
    place = redis_url.removeprefix("redis://").removesuffix("/0")
    with Redis.from_url(f"redis://{place}/7") as redis:
        redis.execute_command("ACL", "SETUSER", "me", "on", ">hush", "~*", "&*", "+@all")
        redis.flushdb()
        yield f"redis://me:hush@{place}/7"
        redis.flushdb()
        redis.execute_command("ACL", "DELUSER", "me")


class Office:
    """Where an operator sits, with a store in Redis. Nothing that a command says holds a secret."""

    def __init__(self, folder: Path, url: str, telegram: str) -> None:
        self.folder, self.url = folder, url
        self.telegram = Desk(folder, telegram)
        self.set = {"TIDEGATE_STORE": url, "TIDEGATE_KEY": KEY, "TIDEGATE_SPOOL": str(folder / "spool")}

    @contextmanager
    def surroundings(self) -> Iterator[None]:
        known = {name: value for name, value in self.set.items() if value}
        with patch.dict(os.environ, environment() | known, clear=True), chdir(self.folder):
            yield

    def run(self, *arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with self.surroundings(), redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
        said = out.getvalue() + err.getvalue()
        assert "hush" not in said
        assert "Traceback" not in said
        return code, out.getvalue(), err.getvalue()

    def told(self, *arguments: str) -> dict[str, Any]:
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, err
        told: dict[str, Any] = json.loads(out)
        return told

    def complains(self, *arguments: str, code: int = 2) -> str:
        ended, out, err = self.run(*arguments)
        assert (ended, out) == (code, ""), err
        return err.splitlines()[-1]  # a warning about the target of a move may stand before

    def within(self, work: Callable[[Tidegate], Awaitable[Result]]) -> Result:
        async def opened() -> Result:
            async with gate, Clock().timeout(PATIENCE):
                return await work(gate)

        with self.surroundings():
            gate = Tidegate()
            return asyncio.run(opened())

    def begin(self) -> None:
        async def begin(gate: Tidegate) -> None:
            await gate.register_bot(TOKEN, api_url=self.telegram.telegram)

        self.within(begin)

    def send(self, chat: int, *options: str) -> str:
        ticket: str = self.told("send", str(chat), "hello", *options)["id"]
        return ticket

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        with self.surroundings():
            process = fork_server.popen(
                [*TIDEGATE, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def deliver_all(self) -> dict[str, Any]:
        """With the worker of the command line, until nothing waits."""
        return self.told("worker", "--drain")


@pytest.fixture
def office(tmp_path: Path, url: str, address: str) -> Office:
    return Office(tmp_path, url, address)


def shelf_at(url: str, *keys: str) -> RedisBotStore:
    settings = Settings.model_validate({"tidegate_key": ",".join(keys)})
    return RedisBotStore(RedisPyConnection(url, Clock(), "me"), TokenCipher.of(settings.tidegate_key, None))


def test_a_bot_is_registered_listed_and_removed_with_the_variable_only(office: Office) -> None:
    office.set["TIDEGATE_KEY"], office.set["TELEGRAM_BOT_TOKEN"] = "", TOKEN
    no_key = office.complains("bot", "add", "--no-check")
    office.set["TIDEGATE_KEY"] = KEY
    added = office.told("bot", "add", "--no-check")
    office.send(next(chats))

    assert "TIDEGATE_KEY is not set" in no_key
    assert "tidegate key new" in no_key
    assert added["fresh"]
    [bot] = office.told("bot", "list")["bots"]
    assert (bot["bot"], bot["waiting"], bot["dead"]) == (42, 1, 0)
    assert office.told("bot", "remove", "42", "--yes") == {"bot": 42, "waiting": 1}
    assert office.told("bot", "list") == {"bots": []}
    assert "register it with tidegate bot add" in office.complains("send", "1", "hello")


def test_a_worker_without_the_key_says_which_variable_it_needs(office: Office) -> None:
    office.begin()
    office.set["TIDEGATE_KEY"] = ""
    assert "TIDEGATE_KEY is not set" in office.complains("worker", "--drain")
    office.set["TIDEGATE_KEY"] = new_key()
    assert "TIDEGATE_KEY does not open" in office.complains("worker", "--drain", code=1)


def test_other_processes_notice_bots_that_come_and_go(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "LOOK_EVERY", 0.02)
    seen: list[set[int]] = []

    shelf, clock = shelf_at(office.url, KEY), Clock()

    async def watch(gate: Tidegate) -> None:
        for change in (shelf.put(BotId(42), TOKEN, TELEGRAM), shelf.remove(BotId(42))):
            await change
            before = {bot.id for bot in gate.bots()}
            while {bot.id for bot in gate.bots()} == before:
                await clock.sleep(0.01)
            seen.append({bot.id for bot in gate.bots()})
        await shelf._connection.close()  # noqa: SLF001

    office.within(watch)

    assert seen == [{42}, set()]


async def test_tokens_are_rotated_all_or_none_though_others_change_them(url: str) -> None:
    new = new_key()
    shelf, rotating, afterwards = await asyncio.to_thread(
        lambda: (shelf_at(url, KEY), shelf_at(url, new, KEY), shelf_at(url, new))
    )
    for number in (42, 43):
        await shelf.put(BotId(number), f"{number}:one", TELEGRAM)
    read, meanwhile = rotating._stored, [shelf.put(BotId(43), "43:two", TELEGRAM), shelf.remove(BotId(42))]  # noqa: SLF001

    async def kept() -> dict[BotId, bytes]:
        found = await read()
        if meanwhile:
            await meanwhile.pop(0)
        return found

    with patch.object(rotating, "_stored", kept):
        assert await rotating.rotate() == 1

    [bot] = await afterwards.all()
    assert await afterwards.open(bot) == "43:two"
    with pytest.raises(WrongKeyError):
        await shelf.open(bot)
    for one in (shelf, rotating, afterwards):
        await one._connection.close()  # noqa: SLF001


def test_the_key_is_rotated_from_the_command_line(office: Office) -> None:
    office.begin()
    new = new_key()
    assert "TIDEGATE_KEY holds one key only" in office.complains("key", "rotate")
    office.set["TIDEGATE_KEY"] = f"{new},{KEY}"
    assert office.told("key", "rotate") == {"rotated": 1, "key": "TIDEGATE_KEY"}
    office.set["TIDEGATE_KEY"] = new
    office.send(next(chats))
    assert office.deliver_all()["delivered"] == 1


def test_an_operator_looks_and_takes_hold(office: Office) -> None:
    office.begin()
    chat, other = next(chats), next(chats)
    first, second, later = office.send(chat), office.send(other), office.send(chat, "--in", "1h")

    assert office.told("queue", "pause", "--chat", str(chat))["paused"] == [{"bot": 42, "chat_id": chat}]
    why = office.told("queue", "why", first)
    assert why["waits_for"] == ["no worker runs: start one with tidegate worker", "its chat is paused"]
    assert why["expected_in"] is None
    stats = office.told("queue", "stats")
    assert (stats["total_queued"], stats["sender"], stats["delivers"]) == (3, None, False)
    assert (stats["bots"], stats["paused"]) == ([42], [{"bot": 42, "chat_id": chat}])
    assert "nothing is sent" in office.run("queue", "stats")[1]
    listed = office.told("queue", "list", "--chat", str(chat))["messages"]
    assert [message["id"] for message in listed] == [first, later]
    assert office.told("queue", "cancel", second)["cancelled"] == 1
    office.told("queue", "resume", "--chat", str(chat))
    office.told("queue", "pause")
    assert office.told("queue", "stats")["paused"] == [{"bot": 42, "chat_id": None}]
    assert office.told("forget", str(chat), "--yes")["erased"] == 2
    assert office.told("queue", "stats")["total_queued"] == 0


def test_letters_are_listed_replayed_and_dropped(office: Office) -> None:
    office.begin()
    chat = next(chats)
    office.telegram.say_to_telegram("block", bot=42, user=chat)
    letter = office.send(chat)
    assert office.deliver_all()["dead"] == 1

    assert [each["id"] for each in office.told("dlq", "list")["messages"]] == [letter]
    assert office.told("bot", "list")["bots"][0]["dead"] == 1
    office.telegram.say_to_telegram("block", bot=42, user=chat, blocked=False)
    assert office.told("dlq", "replay", letter) == {"replayed": 1}
    assert office.deliver_all()["delivered"] == 1
    assert office.told("dlq", "drop", "--all", "--yes") == {"dropped": 0}


def test_workers_share_the_work_and_a_broadcast_joins_them(office: Office, tmp_path: Path) -> None:
    office.begin()
    people = [next(chats) for _ in range(12)]
    (tmp_path / "people.csv").write_text("chat_id\n" + "\n".join(map(str, people)))
    with office.running("worker") as one, office.running("worker", "--json") as two:
        assert one.stdout is not None
        assert two.stderr is not None
        while "Delivering" not in (line := one.stdout.readline()):
            assert line
        while "Delivering" not in (line := two.stderr.readline()):
            assert line
        stats = office.told("queue", "stats")
        with office.running("broadcast", str(tmp_path / "people.csv"), "--text", "hello") as third:
            out, err = third.communicate(timeout=PATIENCE)
        for process in (one, two):
            process.terminate()
        said, report = one.communicate(timeout=PATIENCE)[0], json.loads(two.communicate(timeout=PATIENCE)[0])

    assert third.returncode == 0, err
    assert "beside the workers" in out
    assert stats["delivers"]
    assert stats["processes"] >= 2
    assert "hush" not in said + out + err
    assert report["delivered"] <= 12
    assert [office.telegram.arrived(chat) for chat in people] == [1] * 12


@pytest.mark.parametrize("command", [("backup", "copy.db"), ("restore", "copy.db", "--park")])
def test_what_is_for_files_says_so(office: Office, command: tuple[str, ...]) -> None:
    assert "this command needs a store in a file" in office.complains(*command)


@pytest.mark.parametrize("command", ["queue stats", "send 1 hello", "bot list", "dlq list", "worker"])
def test_a_redis_that_is_away_is_named_without_its_password(office: Office, command: str) -> None:
    office.set["TIDEGATE_STORE"] = "redis://me:hush@127.0.0.1:1/7"

    code, _, err = office.run(*command.split())

    assert code == 1
    assert "redis://127.0.0.1:1/7 cannot be reached" in err.splitlines()[-1]


async def test_what_a_process_says_of_itself_is_heard_by_others_until_it_is_over(
    url: str, tmp_path: Path
) -> None:
    settings = Settings.model_validate({"tidegate_spool": str(tmp_path)})
    one = await asyncio.to_thread(Tidegate, url, settings=settings)
    other = await asyncio.to_thread(Tidegate, url, settings=settings)
    async with one:
        assert await one.core.store.sender_health() is None
        async with other:
            async with one.clock.timeout(5):
                while await one.core.store.sender_health() is None:  # until its first heartbeat
                    await one.clock.sleep(0.01)
            assert await one.core.store.sender_health() == StoreHealth()
            link = other.core.store.outbox.connection  # type: ignore[attr-defined]
            await tell_health(link, StoreHealth().with_problems(["the worker has failed"]))
            told = await one.core.store.sender_health()
            await tell_health(link, StoreHealth())
            after = await one.core.store.sender_health()
    assert told is not None
    assert (told.ready, told.reasons) == (False, (f"process {link.me}: the worker has failed",))
    assert after == StoreHealth()


async def test_a_message_of_a_bot_that_no_running_process_knows_waits_for_one_that_does(
    url: str, tmp_path: Path
) -> None:
    settings = Settings.model_validate({"tidegate_spool": str(tmp_path)})
    putting = await asyncio.to_thread(Tidegate, url, settings=settings)
    delivering = await asyncio.to_thread(Tidegate, url, settings=settings)
    delivering.add_bot("42:any", api_url="http://127.0.0.1:1")
    putting.add_bot("53:any", api_url="http://127.0.0.1:1")
    async with putting, delivering, delivering.worker():
        async with putting.clock.timeout(5):
            while not (await putting.core.store.activity()).delivers:
                await putting.clock.sleep(0.01)
        link = delivering.core.store.outbox.connection  # type: ignore[attr-defined]
        await tell_health(link, delivering.core.health())  # as its next heartbeat does
        ticket = await putting.send(chat_id=1001, text="hello")

        explained = await explain(putting, ticket.id)
        listed = await explain_many(putting, [ticket.id])

    assert explained is not None
    assert explained[1] == listed[ticket.id]
    assert explained[1].expected_in is None
    [reason] = explained[1].waits_for
    assert reason.startswith("no process that runs delivers for bot 53 ")
    assert reason.endswith("register the bot with tidegate bot add, or start its program")


def test_the_doctor_looks_at_the_redis_that_is_the_store(office: Office) -> None:
    found = {check["name"]: check for check in office.told("doctor")["checks"]}

    assert found["store"]["state"] == "ok"
    assert found["store memory"]["state"] == "ok"
    assert found["store persistence"]["state"] == "warning"
    assert "redis" not in found


async def test_what_its_redis_could_lose_is_said_when_a_gate_opens(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings.model_validate({"tidegate_spool": str(tmp_path)})
    gate = await asyncio.to_thread(Tidegate, url, settings=settings)
    with caplog.at_level(logging.WARNING, "tidegate"):
        async with gate:
            pass

    assert [record.getMessage() for record in caplog.records] == [
        "the store's Redis, persistence: off; a restart loses every message: CONFIG SET appendonly yes"
    ]


async def test_a_redis_that_forbids_to_be_asked_opens_without_a_word(
    url: str, redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def forbid() -> None:
        with Redis.from_url(redis_url) as redis:
            redis.execute_command("ACL", "SETUSER", "me", "-config")

    await asyncio.to_thread(forbid)
    settings = Settings.model_validate({"tidegate_spool": str(tmp_path)})
    gate = await asyncio.to_thread(Tidegate, url, settings=settings)
    with caplog.at_level(logging.WARNING, "tidegate"):
        async with gate:
            pass

    assert not caplog.records


@pytest.fixture
def file(tmp_path: Path, address: str) -> Desk:
    desk = Desk(tmp_path, address)
    desk.begin()
    return desk


def test_a_backlog_moves_with_its_bot_its_pauses_and_its_times(office: Office, file: Desk) -> None:
    now, later, held = next(chats), next(chats), next(chats)
    file.put(now, now)
    file.put(later, not_before=Clock().now() + 3600)
    file.put(held)
    file.told("queue", "pause", "--chat", str(held))

    would = office.told("move", "sqlite:" + str(file.store), office.url, "--dry-run")
    assert (would["waiting"], would["moved"], would["bots"], would["paused"]) == (4, 0, [42], 1)
    assert office.told("queue", "stats")["total_queued"] == 0
    moved = office.told("move", str(file.store), office.url)

    assert (moved["moved"], moved["waiting"], moved["bots"], moved["passed"]) == (4, 0, [42], True)
    assert office.told("queue", "stats")["paused"] == [{"bot": 42, "chat_id": held}]
    assert office.told("queue", "cancel", "--chat", str(held), "--yes")["cancelled"] == 1
    [waits] = office.told("queue", "list", "--chat", str(later))["messages"]
    assert waits["not_before"] > Clock().now() + 3500
    assert office.told("queue", "cancel", "--chat", str(later), "--yes")["cancelled"] == 1
    assert office.deliver_all()["delivered"] == 2
    assert (office.telegram.arrived(now), office.telegram.arrived(held)) == (2, 0)
    assert file.told("queue", "stats")["total_queued"] == 0


@pytest.mark.usefixtures("real_interpreters")
def test_a_move_is_refused_while_a_worker_sends_and_says_what_bots_stay(office: Office, file: Desk) -> None:
    file.put(next(chats))
    file.told("queue", "pause")
    with file.worker():
        assert "stop it first" in office.complains("move", str(file.store), office.url, code=1)
    office.set["TIDEGATE_KEY"] = ""
    code, out, _ = office.run("move", str(file.store), office.url)

    assert code == 0
    assert "Moved 1 message" in out
    assert "Not registered there: 42:…" in out


def test_a_move_to_what_is_no_redis_is_refused(office: Office, file: Desk) -> None:
    assert "TO is not a store in Redis" in office.complains("move", str(file.store), "other.db")
    assert "cannot be reached" in office.complains(
        "move", str(file.store), "redis://me:hush@127.0.0.1:1/0", code=1
    )
    with pytest.raises(BadInputError):
        Tidegate("redis://:hush@[host")
