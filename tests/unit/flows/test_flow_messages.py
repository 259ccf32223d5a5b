"""What states show: files, albums, keys below the chat, and messages that are changed in place."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.flows import FlowBuilder, FlowError, load_flow, texts_of
from tidegate.flows.effects import DeleteMessage, SayText, ShownKey, ShownMedia
from tidegate.flows.events import ButtonPress, Content, FlowEvent, Signal
from tidegate.flows.executor.telegram_message import message_fields, replacement_fields
from tidegate.flows.flow import Flow
from tidegate.flows.problem import Problem
from tidegate.flows.session import Screen
from tidegate.model import File
from tidegate.templates import utf16_length
from unit.flows.talk import Talk, only, words


def shown(
    *media: tuple[str, str], say: str | None = "Look", buttons: bool = False, keys: bool = False
) -> Flow:
    """A state that shows files, by kind and id, after one that only speaks."""
    flow = FlowBuilder("show", given=("photo", "name"))
    flow.command("/start", to="start")
    flow.state("start", say="Hi").button("Look", to="look")
    state = flow.state("look", say=say).on("text", to="end")
    for kind, name in media:
        state.media(kind, id=name)  # type: ignore[arg-type]
    if buttons:
        state.button("End", to="end")
    if keys:
        state.key("End", to="end")
    flow.final("end", say="Bye")
    return flow.build_unchecked()


def kinds(flow: Flow) -> list[str]:
    return [problem.kind for problem in flow.validate()]


def look(flow: Flow, **data: object) -> list[SayText]:
    talk = Talk(flow)
    talk.begin(**data)
    return only(talk.press("Look"), SayText)


def test_one_file_has_the_text_as_its_caption_and_the_buttons() -> None:
    (said,) = look(shown(("photo", "A"), buttons=True))
    assert (said.text, said.media) == ("Look", (ShownMedia("photo", id="A"),))
    assert [button.text for row in said.buttons for button in row] == ["End"]


def test_an_album_has_the_text_as_its_caption_unless_buttons_need_a_message() -> None:
    album = (ShownMedia("photo", id="A"), ShownMedia("video", id="B"))
    files = ("photo", "A"), ("video", "B")
    assert look(shown(*files)) == [SayText("Look", media=album)]
    first, second = look(shown(*files, keys=True))
    assert first == SayText("", media=album)
    assert (second.text, second.keys) == ("Look", ((ShownKey("End"),),))


def test_a_file_whose_id_has_no_value_is_left_out() -> None:
    flow = shown(("photo", "{photo}"))
    assert look(flow, photo="P")[0].media == (ShownMedia("photo", id="P"),)
    assert look(flow) == [SayText("Look")]


def test_a_long_caption_is_cut_to_what_telegram_takes() -> None:
    (said,) = look(shown(("photo", "A"), say="{name} " * 3), name="x" * 900)
    assert utf16_length(said.text) <= 1_024
    assert utf16_length(look(shown(say="{name} " * 3), name="x" * 900)[0].text) > 2_000


@pytest.mark.parametrize("value", ["", "..", ".", "../../etc/passwd", "a/b", "a\\b", "a\0b", ".hidden"])
def test_a_value_cannot_lead_out_of_the_folder_of_a_path(value: str) -> None:
    flow = FlowBuilder("files", given=("order",))
    flow.state("start", say="Hi").button("Look", to="look")
    flow.final("look", say="Your bill").document("bills/{order}.pdf")
    talk = Talk(flow.build())
    talk.begin(order=value)
    with pytest.raises(FlowError, match="cannot be a part of the path"):
        talk.press("Look")


def test_a_path_is_filled_in() -> None:
    flow = FlowBuilder("files", given=("order",))
    flow.final("look", say="Your bill").document("bills/{order}.pdf")
    (said,) = only(Talk(flow.build()).begin(order="TG-7"), SayText)
    assert said.media == (ShownMedia("document", file="bills/TG-7.pdf"),)


def test_files_are_found_beside_the_declaration(tmp_path: Path) -> None:
    (tmp_path / "menu.jpg").write_bytes(b"menu")
    declaration = tmp_path / "cafe.toml"
    declaration.write_text(
        'name = "cafe"\ninitial = "a"\n[states.a]\nsay = "Menu"\nfinal = true\n'
        'media = [{kind = "photo", file = "menu.jpg"}]\n'
    )
    flow = load_flow(declaration)
    flow.check()
    assert flow.by_name["a"].media[0].file == str(tmp_path / "menu.jpg")
    (tmp_path / "menu.jpg").unlink()
    assert flow.validate() == [
        Problem("bad_media", "a", f"there is no file {tmp_path}/menu.jpg: put it there, or correct it")
    ]
    assert flow.validate(files=False) == []


def test_a_photo_that_is_given_as_an_address_or_as_bytes_is_told_how_to_be_given() -> None:
    flow = FlowBuilder("files")
    flow.final("look", say="Your bill").photo("https://example.org/bill.png")
    with pytest.raises(BadInputError, match=r"bill.png is an address, and no file .*: give it as id"):
        flow.build()

    content: Any = b"a picture"
    with pytest.raises(
        BadInputError, match="state menu: a photo is shown from a file on disk: give its path"
    ):
        flow.final("menu").photo(content)


def test_what_telegram_would_refuse_is_found_before() -> None:
    assert kinds(shown(("photo", "A"), ("document", "B"))) == ["bad_media"]
    assert kinds(shown(("animation", "A"), ("animation", "B"))) == ["bad_media"]
    assert kinds(shown(*[("photo", "A")] * 11)) == ["too_long"]
    assert kinds(shown(("photo", "A"), say="x" * 1_025)) == ["too_long"]
    assert kinds(shown(("photo", "A"), ("photo", "B"), say="x" * 1_025, buttons=True)) == []
    assert kinds(shown(("photo", "A"), say=None, buttons=True)) == []
    assert kinds(shown(("photo", "{photo}"), say=None, buttons=True)) == ["bad_button"]
    assert kinds(shown(("photo", "{unknown}"))) == ["missing_field"]
    assert kinds(shown(buttons=True, keys=True)) == ["bad_button"]
    assert kinds(shown(keys=True, say=None)) == ["bad_button"]
    flow = FlowBuilder("show")
    flow.final("a").media("photo").media("photo", "a.jpg", id="A")
    assert [problem.kind for problem in flow.build_unchecked().validate()] == ["bad_media", "bad_media"]


def test_keys_that_do_nothing_or_read_the_same_are_found() -> None:
    flow = FlowBuilder("keys", texts=texts_of({"en": {"a": "Same", "b": "Same", "hi": "Hi"}}))
    state = flow.state("start", say="hi", in_place=True).on("text", to="end")
    state.key("a", save="x").key("b", to="end", save=("x", "y")).key("a b " * 17, to="end").key(" ", to="end")
    flow.final("end")
    told = [problem.text for problem in flow.build_unchecked().validate() if problem.state == "start"]
    assert [text.split(":")[0] for text in told] == [
        "2 keys read 'Same'",
        "the key 'a' leads nowhere, so its guard, save and value do nothing",
        "the key 'b' brings one value, and save names several fields",
        f"the key {'a b ' * 5!r}… has 68 characters",
        "a key has no text",
        "it has keys, which only a new message can bring",
    ]


def keyed() -> Talk:
    texts = texts_of({"en": {"go": "Go on", "hi": "Hi"}, "de": {"go": "Weiter", "hi": "Hallo"}})
    flow = FlowBuilder("keys", texts=texts, otherwise="")
    flow.state("start", say="hi").key("go", to="ask", save="went").key("Free").on(
        "text", to="end", save="text"
    )
    flow.state("ask", say="Who?").key("Me", request="contact", to="end", save=("phone_number",))
    flow.final("end", say="{went} {text} {phone_number}")
    return Talk(flow.build())


def test_a_key_is_known_by_its_text_in_the_users_language() -> None:
    talk = keyed()
    talk.language = "de"
    (said,) = only(talk.begin(), SayText)
    assert said.keys == ((ShownKey("Weiter"),), (ShownKey("Free"),))
    assert words(talk.write(" Weiter ")) == ["Who?"]
    assert talk.live.data == {"went": "go"}


def test_a_key_without_a_target_is_a_text_like_any_other() -> None:
    talk = keyed()
    talk.begin()
    assert words(talk.write("Free")) == [" Free "]


def test_keys_are_taken_away_by_the_next_message_that_can() -> None:
    talk = keyed()
    talk.begin()
    (asked,) = only(talk.write("Go on"), SayText)
    assert (asked.keys, asked.removes_keys) == (((ShownKey("Me", "contact"),),), False)
    (last,) = only(talk.take(Content("contact", {"phone_number": "+4"}, **talk.cause())), SayText)
    assert (last.text, last.removes_keys) == ("go  +4", True)
    assert not talk.live.has_keys


# In place


def places(*, media: bool = False) -> Talk:
    flow = FlowBuilder("places", in_place=True)
    flow.command("/start", to="a")
    flow.state("a", say="A").button("To b", to="b").button("To c", to="c").on("text", to="b")
    b = flow.state("b", say="B").button("To a", to="a")
    if media:
        b.photo(id="P")
    flow.state("c", say="C", in_place=False).button("Back", to="a").run("w", done="b", failed="b")
    return Talk(flow.build_unchecked())


def press(talk: Talk, text: str, message: int | None, *, has_media: bool = False) -> list[SayText]:
    data = next(button.data for button in reversed(talk.buttons) if button.text == text)
    effects = talk.take(ButtonPress(data or "", "q", message, has_media, **talk.cause()))
    talk.deleted = [effect.message for effect in effects if isinstance(effect, DeleteMessage)]
    return only(effects, SayText)


def test_the_message_of_the_pressed_button_is_changed() -> None:
    talk = places()
    talk.begin()
    (said,) = press(talk, "To b", 5)
    assert (said.text, said.edits) == ("B", 5)
    assert talk.live.screen == Screen(5)
    (said,) = press(talk, "To a", None)  # Telegram does not show it any more: what is known is used
    assert said.edits == 5


def test_below_what_the_user_writes_a_new_message_comes() -> None:
    talk = places()
    talk.begin()
    press(talk, "To b", 5)
    press(talk, "To a", 5)
    (said,) = only(talk.write("b"), SayText)
    assert (said.text, said.edits, talk.live.screen) == ("B", None, None)


def test_a_state_may_want_a_new_message_which_ends_the_old_place() -> None:
    talk = places()
    talk.begin()
    (said,) = press(talk, "To c", 5)
    assert (said.text, said.edits, talk.live.screen) == ("C", None, None)


def test_a_photo_replaces_a_text_and_a_text_a_photo() -> None:
    talk = places(media=True)
    talk.begin()
    (said,) = press(talk, "To b", 5)
    assert (said.edits, talk.live.screen) == (5, Screen(5, has_media=True))
    (said,) = press(talk, "To a", 5, has_media=True)
    assert (said.text, said.edits, talk.deleted, talk.live.screen) == ("A", None, [5], None)


# As calls of the Bot API


@pytest.mark.parametrize("mode", [None, "HTML"])
def test_messages_are_calls_of_the_bot_api(mode: str | None) -> None:
    shared = {} if mode is None else {"parse_mode": mode}
    photo, bill = ShownMedia("photo", id="A"), ShownMedia("document", file="bill.pdf")
    keys = {"keyboard": [[{"text": "Me", "request_contact": True}]], "resize_keyboard": True}
    assert message_fields(SayText("Hi"), mode) == {"method": "sendMessage", "text": "Hi", **shared}
    assert message_fields(SayText("Hi", keys=((ShownKey("Me", "contact"),),)), mode) == {
        "method": "sendMessage",
        "text": "Hi",
        **shared,
        "reply_markup": {**keys, "one_time_keyboard": True},
    }
    assert message_fields(SayText("Hi", media=(bill,), removes_keys=True), mode) == {
        "method": "sendDocument",
        "document": File(path="bill.pdf"),
        "caption": "Hi",
        **shared,
        "reply_markup": {"remove_keyboard": True},
    }
    assert message_fields(SayText("Hi", media=(photo, photo)), mode) == {
        "method": "sendMediaGroup",
        "media": [
            {"type": "photo", "media": "A", "caption": "Hi", **shared},
            {"type": "photo", "media": "A"},
        ],
    }
    assert message_fields(SayText("Hi", edits=5), mode) == {
        "method": "editMessageText",
        "message_id": 5,
        "text": "Hi",
        **shared,
    }
    assert message_fields(SayText("Hi", media=(photo,), edits=5), mode) == {
        "method": "editMessageMedia",
        "message_id": 5,
        "media": {"type": "photo", "media": "A", "caption": "Hi", **shared},
    }


MEDIA = st.sampled_from([ShownMedia("photo", id="A"), ShownMedia("video", file="b.mp4")])
SAID = st.builds(
    SayText,
    st.sampled_from(["Hi", "Bye"]),
    media=st.lists(MEDIA, max_size=3).map(tuple),
    edits=st.none() | st.just(5),
).filter(lambda said: said.edits is None or len(said.media) < 2)


@given(SAID, st.sampled_from([None, "HTML"]))
def test_a_refused_message_ends_as_its_plain_text(said: SayText, mode: str | None) -> None:
    fields, tried = message_fields(said, mode), []
    while (again := replacement_fields(fields["method"], fields, "bad_request")) is not None:
        tried.append(fields["method"])
        fields = again
    assert (fields["method"], fields["text"], fields.get("parse_mode")) == ("sendMessage", said.text, mode)
    assert len(tried) == (bool(said.media)) + (said.edits is not None)


def test_nothing_is_sent_instead_if_the_user_is_gone() -> None:
    for reason in ("blocked", "not_found", "attempts", "expired"):
        assert replacement_fields("sendPhoto", {"caption": "Hi"}, reason) is None
    assert replacement_fields("deleteMessage", {"message_id": 5}, "bad_request") is None
    assert replacement_fields("sendPhoto", {"photo": "A"}, "bad_request") is None


# Lists of buttons


def flats(items: object, *, page: int = 2, columns: int = 1, in_place: bool = False) -> Talk:
    flow = FlowBuilder("flats", in_place=in_place, given=("flats", "currency"))
    flow.command("/start", to="list")
    listed = flow.state("list", say="Choose:").on("signal:new", to="list", save="flats")
    listed.button("None of them", to="end", save="title", value="none")
    listed.choose(
        "flats",
        to="one",
        text="{title}, {price} {currency}",
        save=("title",),
        page=page,
        columns=columns,
        empty="Nothing there.",
    )
    flow.state("one", say="{title}").button("Back", to="list").button("Take it", to="end")
    flow.final("end", say="You take {title}.")
    talk = Talk(flow.build())
    talk.begin(flats=items, currency="€")
    return talk


def flat(number: int) -> dict[str, object]:
    return {"title": f"Flat {number}", "price": number}


def rows(talk: Talk) -> list[list[str]]:
    return [[button.text for button in row] for row in talk.rows]


def test_a_list_is_shown_a_page_at_a_time() -> None:
    talk = flats([flat(number) for number in range(5)])
    assert rows(talk) == [["Flat 0, 0 €"], ["Flat 1, 1 €"], ["1/3", "»"], ["None of them"]]
    (said,) = press(talk, "»", 9)
    assert (said.text, said.edits) == ("Choose:", 9)
    assert rows(talk) == [["Flat 2, 2 €"], ["Flat 3, 3 €"], ["«", "2/3", "»"], ["None of them"]]
    assert press(talk, "2/3", 9) == []
    press(talk, "»", 9)
    assert rows(talk) == [["Flat 4, 4 €"], ["«", "3/3"], ["None of them"]]


def test_whoever_comes_back_sees_the_same_page_until_the_list_is_new() -> None:
    talk = flats([flat(number) for number in range(5)])
    press(talk, "»", 9)
    assert [one.text for one in press(talk, "Flat 3, 3 €", 9)] == ["Flat 3"]
    assert talk.live.data["title"] == "Flat 3"
    press(talk, "Back", None)
    assert rows(talk)[0] == ["Flat 2, 2 €"]
    talk.take(Signal("new", [flat(number) for number in range(5)], **talk.cause()))
    assert rows(talk)[0] == ["Flat 0, 0 €"]


def test_an_empty_list_says_so() -> None:
    for talk in (flats([]), flats(None)):
        assert talk.said == "Nothing there."
        assert rows(talk) == [["None of them"]]


def test_plain_values_are_items_too() -> None:
    flow = FlowBuilder("days", given=("days",))
    flow.state("list", say="When?").choose("days", to="end", save="day", columns=2)
    flow.final("end", say="On {day}.")
    talk = Talk(flow.build())
    talk.begin(days=["Mon", "Tue", "Wed"])
    assert rows(talk) == [["Mon", "Tue"], ["Wed"]]
    assert words(talk.press("Tue")) == ["On Tue."]


def test_something_else_than_a_list_is_an_error_of_the_flow() -> None:
    with pytest.raises(FlowError, match="flats is dict, and a list was expected"):
        flats({"a": 1})


def test_a_button_still_means_its_item_when_the_list_changes_around_it() -> None:
    flow = FlowBuilder("seats", given=("seats",))
    listed = flow.state("list", say="Choose:").choose("seats", to="end", save="seat")
    listed.on("signal:sold", save="seats")
    flow.final("end", say="Seat {seat}.")
    talk = Talk(flow.build())
    talk.begin(seats=["A1", "A2", "A3"])
    talk.take(Signal("sold", ["A2", "A3"], **talk.cause()))
    assert words(talk.press("A1")) == ["That button is no longer in use."]
    assert words(talk.press("A3")) == ["Seat A3."]


def test_a_guard_sees_the_item() -> None:
    flow = FlowBuilder("seats", given=("seats",))
    listed = flow.state("list", say="Choose:", otherwise="That is taken.")
    listed.choose("seats", to="end", guard="is_free", save="seat").button("No", to="end", guard="is_free")
    flow.final("end", say="Seat {seat}.")
    flow.guard(is_free)
    talk = Talk(flow.build())
    talk.begin(seats=["A1", "B1"])
    assert words(talk.press("A1")) == ["That is taken."]
    assert words(talk.press("B1")) == ["Seat B1."]


def is_free(data: Mapping[str, Any], event: FlowEvent) -> bool:  # noqa: ARG001  (a guard)
    return isinstance(event, ButtonPress) and str(event.value).startswith("B")


def test_lists_that_cannot_work_are_found() -> None:
    flow = FlowBuilder("list", given=("a",))
    flow.state("a", say="?").choose("b", page=0).button("End", to="end")
    flow.state("b", say="?").choose("a", to="end", page=98)
    flow.state("c", say="?").choose("a", guard="g", columns=9).on("item:a", to="end").on("item:b", to="end")
    flow.state("d").choose("a", to="end", text=" ")
    flow.final("end").choose("a", to="a")
    problems = [
        (problem.state, problem.text.split(":")[0])
        for problem in flow.build_unchecked().validate()
        if problem.kind not in {"unreachable", "unknown_guard"}
    ]
    assert problems == [
        ("a", "it lists b, which is never saved"),
        ("a", "a page has 1 item or more, in 1 to 8 columns"),
        ("a", "a chosen item leads nowhere"),
        ("b", "a row has at most 8 buttons, a message 100"),
        ("c", "item"),
        ("c", "a page has 1 item or more, in 1 to 8 columns"),
        ("c", "its choices have no to, so their guard and save do nothing"),
        ("d", "it has buttons and says nothing"),
        ("d", "a button of an item has no text"),
        ("end", "a session ends here, so nothing can follow"),
        ("end", "it has buttons and says nothing"),
    ]


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=30), st.integers(1, 7), st.integers(1, 4))
def test_every_item_is_on_one_page_in_order_and_its_button_chooses_it(
    numbers: list[int], page: int, columns: int
) -> None:
    items = [flat(number) for number in numbers]
    talk = flats(items, page=page, columns=columns)
    seen = []
    while True:
        shown = [row for row in talk.rows[:-1] if not any(button.text in {"«", "»"} for button in row)]
        assert all(len(row) <= columns for row in shown)
        buttons = [button for row in shown for button in row]
        assert len(buttons) <= page
        seen += buttons
        if "»" not in [button.text for row in talk.rows for button in row]:
            break
        press(talk, "»", 9)
    assert [button.text for button in seen] == [f"Flat {number}, {number} €" for number in numbers]
    assert all(len((button.data or "").encode()) <= 64 for button in seen)
    for button, item in list(zip(seen, items, strict=True))[:1]:
        talk.take(ButtonPress(button.data or "", "q", **talk.cause()))
        assert (talk.live.state, talk.live.data["title"]) == ("one", item["title"])
