"""`tidegate broadcast resume` of a broadcast that a command began from a file."""

from pathlib import Path

import msgspec
import pytest

from tidegate import Tidegate
from tidegate.broadcast.audience_file import open_audience
from tidegate.cli.broadcast import BroadcastOrder
from tidegate.cli.broadcast.control import campaign_json, how_to_resume, steer, to_resume
from tidegate.cli.broadcast.file_source import file_source, order_of
from tidegate.errors import BadInputError
from tidegate.model import BotId
from tidegate.outbox.campaigns import GONE_AFTER, CampaignRecord, FileSource
from tidegate.sim.virtual_time import VirtualClock

BOT = BotId(42)


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list in the current folder."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "people.csv"
    file.write_text("chat_id,name\n1000,Ann\n1001,Bob\n")
    return file


def begun(order: BroadcastOrder, name: str = "spring") -> CampaignRecord:
    """The record of a broadcast that was stopped."""
    with open_audience(order.file) as source:
        file = file_source(order, order.mailing(source))
    return stopped(file, name)


def stopped(file: FileSource | None, name: str = "spring", changed_at: float = 0.0) -> CampaignRecord:
    return CampaignRecord(
        bot=BOT,
        name=name,
        state="stopped",
        audience="people.csv",
        started_at=0.0,
        changed_at=changed_at,
        file=file,
    )


def resumed(record: CampaignRecord, store: str | None = None) -> BroadcastOrder:
    assert record.file is not None
    return order_of(record, record.file, store, as_json=False)


def test_it_goes_on_with_the_same_file_text_and_options_from_any_folder(
    people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("letter.html").write_text("<b>Hi {name}</b>\n")
    order = BroadcastOrder(
        file="people.csv",
        template="letter.html",
        parse_mode="HTML",
        params=["disable_notification=true"],
        priority="normal",
        remember="30d",
        report="unreached.csv",
        skip_bad=True,
    )
    record = begun(order)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=CampaignRecord)
    Path("letter.html").unlink()  # its text is known
    monkeypatch.chdir("/")

    assert resumed(stored, "other.db") == BroadcastOrder(
        file=str(people),
        text="<b>Hi {name}</b>",
        parse_mode="HTML",
        params=["disable_notification=true"],
        priority="normal",
        remember="30d",
        report=str(people.with_name("unreached.csv")),
        skip_bad=True,
        name="spring",
        bot=42,
        store="other.db",
    )


def test_a_file_that_has_changed_is_refused_with_the_command_to_run(people: Path) -> None:
    record = begun(BroadcastOrder(file="people.csv", text="Hi {name}, it's on", allow_duplicates=True))
    people.write_text(people.read_text() + "1002,Eve\n")

    with pytest.raises(BadInputError) as refused:
        resumed(record, "other.db")

    command = (
        f"tidegate broadcast {people} --name spring --bot 42 --text 'Hi {{name}}, it'\"'\"'s on' "
        "--allow-duplicates --store other.db"
    )
    assert str(refused.value) == (
        f"{people} has changed since broadcast spring began: to send to those in it who did not get the "
        f"message yet, run {command}"
    )


def test_a_file_that_is_gone_is_refused_with_the_command_to_run(people: Path) -> None:
    record = begun(BroadcastOrder(file="people.csv", text="Hi"))
    people.unlink()

    with pytest.raises(BadInputError) as refused:
        resumed(record)

    assert str(refused.value) == (
        f"broadcast spring: cannot read {people}: no such file or directory: put the file back; or run, with "
        f"its new path: tidegate broadcast {people} --name spring --bot 42 --text Hi"
    )


def test_a_broadcast_from_stdin_is_refused_with_the_command_to_run() -> None:
    record = stopped(FileSource(path="-", digest="00", text="Hi", options={"text": "Hi"}))

    with pytest.raises(BadInputError, match=r"read from stdin, .* into tidegate broadcast - --name spring"):
        resumed(record)


def test_without_its_file_a_worker_delivers_what_is_in_the_store(people: Path) -> None:
    record = msgspec.structs.replace(begun(BroadcastOrder(file="people.csv", text="Hi")), state="delivering")
    people.unlink()

    with pytest.raises(BadInputError, match="All its messages are in the store: tidegate worker delivers"):
        resumed(record)


@pytest.mark.parametrize(
    ("file", "how"),
    [
        (FileSource(path="/people.csv", digest="00"), "tidegate broadcast resume spring"),
        (FileSource(path="-", digest="00"), "the same command again"),
        (None, "the same call of gate.broadcast again"),
    ],
)
def test_it_is_said_how_to_go_on_and_the_text_is_not_shown(file: FileSource | None, how: str) -> None:
    record = stopped(file)

    assert how_to_resume(record) == how
    shown = campaign_json(record)
    assert shown["resumable"] is (file is not None and file.path != "-")
    assert "file" not in shown


async def test_one_that_was_killed_a_moment_ago_is_waited_for(clock: VirtualClock) -> None:
    file = FileSource(path="/people.csv", digest="00")
    async with Tidegate("memory://", clock=clock) as gate:
        record = stopped(file, changed_at=clock.now())
        campaigns = gate.core.store.campaigns
        await campaigns.save(msgspec.structs.replace(record, state="running"), "pause")
        began = clock.monotonic()

        found = await to_resume(gate, "spr", None, clock)

        assert found.state == "stopped"
        assert clock.monotonic() - began == pytest.approx(GONE_AFTER, abs=1)
        known = await campaigns.find(BOT, "spring")
        assert known is not None
        assert known[1] == "run"  # it does not begin paused


async def test_one_that_runs_is_not_started_twice(clock: VirtualClock) -> None:
    file = FileSource(path="/people.csv", digest="00")
    async with Tidegate("memory://", clock=clock) as gate:
        running = msgspec.structs.replace(stopped(file, changed_at=clock.now()), state="running")
        await gate.core.store.campaigns.save(running)
        alive = msgspec.structs.replace(running, changed_at=clock.now() + 2)
        clock.call_later(2, lambda: gate.core._tasks.start(gate.core.store.campaigns.save(alive), "report"))  # noqa: SLF001

        assert (await to_resume(gate, "spring", None, clock)).state == "running"
        assert (await steer(gate, "spring", None, "run")).state == "running"


async def test_the_beginning_of_a_name_is_enough_if_it_is_clear(clock: VirtualClock) -> None:
    async with Tidegate("memory://", clock=clock) as gate:
        for name in ("spring", "sprint", "summer"):
            await gate.core.store.campaigns.save(stopped(None, name))

        assert (await steer(gate, "su", None, "cancel")).name == "summer"
        with pytest.raises(BadInputError, match="spr is the beginning of spring, sprint: write more of it"):
            await steer(gate, "spr", None, "cancel")
        with pytest.raises(BadInputError, match="no broadcast winter is known here"):
            await steer(gate, "winter", None, "cancel")
