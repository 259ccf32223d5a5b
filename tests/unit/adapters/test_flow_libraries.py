"""Flows do the same on aiogram and on python-telegram-bot: one table of tests for both."""

from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster
from telegram.ext import Application

from tidegate import PtbFlowExecutor, Tidegate
from tidegate.errors import BadInputError
from tidegate.flows import Flow, FlowBuilder
from tidegate.flows.executor import WorkContext
from tidegate.sim.telegram import Person
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.flow_stages import STAGES, FlowStage, person

ALICE, BOB, GROUP = 1001, 1002, -100_500


@pytest.fixture(autouse=True)
def what_the_library_needs(monkeypatch: pytest.MonkeyPatch, no_blocking_calls: BlockBuster) -> None:
    """As in `ptb/conftest.py`."""
    monkeypatch.setenv("PTB_TIMEDELTA", "1")
    for function in no_blocking_calls.functions.values():
        function.can_block_in("telegram/ext/_application.py", "__init__")


@pytest.fixture(params=STAGES)
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def stage(library: str, clock: VirtualClock, tmp_path: Path) -> FlowStage:
    return STAGES[library](clock, str(tmp_path / "bot.db"))


@pytest.fixture
def menu(tmp_path: Path) -> Path:
    """A photo."""
    path = tmp_path / "menu.jpg"
    path.write_bytes(b"a photo of the menu")
    return path


async def after(stage: FlowStage, someone: Person, seconds: float = 1.0) -> list[dict[str, Any]]:
    """What the person has heard since the last look."""
    await stage.clock.sleep(seconds)
    heard = list(someone.heard)
    someone.heard.clear()
    return heard


def read(messages: list[dict[str, Any]]) -> list[str]:
    return [message.get("text") or message.get("caption") or "" for message in messages]


def cafe(menu: Path, *, in_place: bool = False) -> Flow:
    flow = FlowBuilder("cafe", in_place=in_place, given=("user_id",))
    flow.command("/start", to="hello")
    flow.state("hello", say="Hello!").button("The menu", to="menu").button("The hall", to="hall")
    flow.state("menu", say="Our menu").photo(menu).button("Back", to="hello").button("Yours?", to="send")
    flow.state("hall", say="Two pictures").photo(menu).photo(id="https://x.example/b.jpg").button(
        "Back", to="hello"
    )
    flow.state("send", say="Send me a photo.").on("photo", to="yours", save=("file_id", "caption"))
    flow.final("yours", say="Yours: {caption}").photo(id="{file_id}")
    return flow.build_unchecked()  # a check looks for the file, which blocks


async def test_photos_albums_and_their_texts_are_sent(stage: FlowStage, menu: Path) -> None:
    alice = person(stage, ALICE)
    async with stage.running(cafe(menu)):
        alice.says("/start")
        await after(stage, alice)
        alice.presses(label="The menu")
        (shown,) = await after(stage, alice)
        assert (shown["caption"], shown["photo"][0]["file_size"]) == ("Our menu", 19)
        assert alice.labels() == ["Back", "Yours?"]
        alice.presses(label="Back")
        await after(stage, alice)
        alice.presses(label="The hall")
        first, second, text = await after(stage, alice, 5)
        assert first["media_group_id"] == second["media_group_id"]
        assert text["text"] == "Two pictures"
        assert alice.labels() == ["Back"]


async def test_a_photo_of_a_user_is_shown_again_by_its_id(stage: FlowStage, menu: Path) -> None:
    alice = person(stage, ALICE)
    async with stage.running(cafe(menu)):
        alice.says("/start")
        await after(stage, alice)
        alice.presses(label="The menu")
        await after(stage, alice)
        alice.presses(label="Yours?")
        await after(stage, alice)
        sent = alice.sends_photo(b"my cat", "Tom")
        (shown,) = await after(stage, alice)
    assert shown["photo"][0]["file_id"] == sent["photo"][0]["file_id"]
    assert shown["caption"] == "Yours: Tom"


async def test_a_state_in_place_changes_the_message_of_the_pressed_button(
    stage: FlowStage, menu: Path
) -> None:
    alice = person(stage, ALICE)
    async with stage.running(cafe(menu, in_place=True)):
        alice.says("/start")
        (hello,) = await after(stage, alice)
        alice.presses(label="The menu")
        (shown,) = await after(stage, alice)  # a photo takes the place of a text
        assert (shown["message_id"], shown["caption"]) == (hello["message_id"], "Our menu")
        alice.presses(label="Back")
        (again,) = await after(stage, alice)  # Telegram cannot take the photo away: a new message
        assert (again["text"], again["message_id"]) == ("Hello!", hello["message_id"] + 1)
        assert "deleteMessage" in [entry.method for entry in stage.telegram.request_log.log]
        alice.presses(label="The menu")
        (shown,) = await after(stage, alice)
        assert shown["message_id"] == again["message_id"]
        alice.presses(label="Yours?")
        await after(stage, alice)
        alice.sends_photo(b"my cat")
        (last,) = await after(stage, alice)
        assert last["message_id"] > shown["message_id"]  # the user's photo stands below the buttons


async def test_an_edit_whose_message_is_gone_is_sent_anew(stage: FlowStage, menu: Path) -> None:
    flow = FlowBuilder("slow", in_place=True)
    flow.command("/start", to="hello")
    flow.state("hello", say="Hello!").button("Cook", to="cooking")
    flow.state("cooking", say="One moment.").run("cook", done="ready", failed="ready")
    flow.final("ready", say="Ready!").photo(menu)

    async def cook(_: WorkContext) -> None:
        await stage.clock.sleep(5)

    alice = person(stage, ALICE)
    async with stage.running(flow.build_unchecked(), work={"cook": cook}):
        alice.says("/start")
        (hello,) = await after(stage, alice)
        alice.presses(label="Cook")
        (cooking,) = await after(stage, alice)
        assert cooking["message_id"] == hello["message_id"]
        bot_chat = alice._chat  # noqa: SLF001
        bot_chat.messages.pop(cooking["message_id"])  # the user deletes it
        (ready,) = await after(stage, alice, 10)
    assert (ready["caption"], ready["message_id"]) == ("Ready!", hello["message_id"] + 1)


async def test_a_file_that_is_not_there_leaves_the_text(stage: FlowStage, tmp_path: Path) -> None:
    alice = person(stage, ALICE)
    async with stage.running(cafe(tmp_path / "lost.jpg")):
        alice.says("/start")
        await after(stage, alice)
        alice.presses(label="The menu")
        (shown,) = await after(stage, alice)
        assert shown["text"] == "Our menu"
        assert alice.labels() == ["Back", "Yours?"]


def delivery() -> Flow:
    flow = FlowBuilder("delivery", given=("user_id",))
    flow.command("/start", to="phone")
    flow.state("phone", say="Your number?", otherwise="Press the key below.").key(
        "Send my number", request="contact", to="where", guard="is_own", save=("phone_number",)
    )
    flow.state("where", say="Where to?").key(
        "Send my location", request="location", to="when", save=("latitude", "longitude")
    ).key("I fetch it", to="when")
    flow.state("when", say="When?").key("Today", to="sure", save="day").key(
        "Tomorrow", to="sure", save="day", value="later", beside=True
    )
    flow.state("sure", say="Call {phone_number}, {day}, {latitude}?").button("Yes", to="done")
    flow.final("done", say="Done.")

    @flow.guard
    def is_own(data: Any, event: Any) -> bool:  # noqa: ANN401
        return bool(event.value.get("user_id") == data["user_id"])

    return flow.build()


async def test_keys_share_contact_and_location_and_go_away(stage: FlowStage) -> None:
    alice = person(stage, ALICE)
    async with stage.running(delivery()):
        alice.says("/start")
        await after(stage, alice)
        assert alice.keys() == ["Send my number"]
        alice.sends(contact={"phone_number": "+5", "first_name": "Bob", "user_id": BOB})
        assert read(await after(stage, alice)) == ["Press the key below."]
        alice.taps("Send my number")
        assert read(await after(stage, alice)) == ["Where to?"]
        alice.taps("Send my location")
        await after(stage, alice)
        assert alice.keys() == ["Today", "Tomorrow"]
        alice.taps("Tomorrow")
        assert read(await after(stage, alice)) == [f"Call +{ALICE}, later, 52.52?"]
        alice.presses(label="Yes")
        assert read(await after(stage, alice)) == ["Done."]
        assert alice.keys() == []


async def test_what_no_state_waits_for_goes_to_other_handlers(stage: FlowStage) -> None:
    alice, bob = person(stage, ALICE), person(stage, BOB)
    async with stage.running(delivery()):
        alice.says("/start")
        bob.says("Hello?")
        await after(stage, alice)
        alice.says("/stats")
        assert read(await after(stage, alice)) == ["The statistics."]
        alice.says("/unknown")
        assert read(await after(stage, alice)) == ["Press the key below."]
        assert read(await after(stage, bob)) == []


async def test_two_flows_take_turns(stage: FlowStage) -> None:
    support = FlowBuilder("support")
    support.command("/help", to="ask")
    support.state("ask", say="What is wrong?").on("text", to="end", save="problem")
    support.final("end", say="Noted: {problem}")
    alice = person(stage, ALICE)
    async with stage.running(delivery(), support.build()):
        alice.says("/help")
        assert read(await after(stage, alice)) == ["What is wrong?"]
        alice.says("All of it")
        assert read(await after(stage, alice)) == ["Noted: All of it"]
        alice.says("/start")
        assert read(await after(stage, alice)) == ["Your number?"]


async def test_the_conversation_goes_on_after_a_restart(
    library: str, clock: VirtualClock, tmp_path: Path
) -> None:
    first = STAGES[library](clock, str(tmp_path / "bot.db"))
    alice = person(first, ALICE)
    async with first.running(delivery()):
        alice.says("/start")
        await after(first, alice)
    second = STAGES[library](clock, str(tmp_path / "bot.db"), first.telegram)
    async with second.running(delivery()) as (executor,):
        alice.taps()
        assert read(await after(second, alice)) == ["Where to?"]
        await executor.begin(ALICE, data={"user_id": ALICE})
        assert read(await after(second, alice)) == ["Your number?"]
        assert executor.stats().begun == 1
        assert [one.flow.name for one in second.gate.core.flows.all()] == ["delivery"]
    assert second.gate.core.flows.all() == []


async def test_a_group_hears_only_what_is_meant_for_the_flow(stage: FlowStage, menu: Path) -> None:
    stage.telegram.world.add_group(GROUP)
    alice = person(stage, ALICE, chat=GROUP)
    async with stage.running(cafe(menu)):
        alice.says("/start")
        assert read(await after(stage, alice)) == ["Hello!"]
        alice.says("Nice here")
        alice.says(f"/start@{'another_bot'}")
        assert read(await after(stage, alice)) == []
        alice.says("/start@sim42_bot")
        assert read(await after(stage, alice)) == ["Hello!"]


async def test_an_application_without_the_gate_is_refused(clock: VirtualClock) -> None:
    executor = PtbFlowExecutor(delivery(), gate=Tidegate("memory://", clock=clock))
    with pytest.raises(BadInputError, match="call attach"):
        await executor.begin(ALICE)
    with pytest.raises(BadInputError, match="build it with"):
        executor.attach(Application.builder().token("42:token").job_queue(None).build())
