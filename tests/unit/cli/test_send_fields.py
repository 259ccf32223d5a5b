"""What is written after `tidegate send` becomes the fields of a message."""

import io
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.send import MessageOptions, fields_of, parameter
from tidegate.errors import BadInputError
from tidegate.model import File

NOW = 1_767_261_600.0  # 2026-01-01T10:00:00Z
HOUR, DAY = 3_600.0, 86_400.0


@pytest.fixture(autouse=True)
def in_helsinki(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two hours ahead of UTC in winter: it is noon there."""
    monkeypatch.setenv("TZ", "Europe/Helsinki")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def fields(**wanted: Any) -> dict[str, Any]:  # noqa: ANN401
    return fields_of(MessageOptions(chat="1001", **wanted), NOW)


def test_a_text_is_a_message() -> None:
    assert fields(text="Hello") == {"chat_id": "1001", "method": "sendMessage", "text": "Hello"}


def test_a_text_with_a_photo_is_its_caption() -> None:
    assert fields(text="Look", photo="AgACAgIAAx") == {
        "chat_id": "1001",
        "method": "sendPhoto",
        "photo": "AgACAgIAAx",
        "caption": "Look",
    }


def test_a_dash_reads_the_text_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("Hyvää päivää\n\n".encode())))

    assert fields(text="-")["text"] == "Hyvää päivää\n"


def test_bytes_that_are_no_text_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))

    with pytest.raises(BadInputError, match="stdin is not valid UTF-8"):
        fields(text="-")


def test_numbers_below_zero_lose_the_space_that_made_them_no_option() -> None:
    assert fields_of(MessageOptions(chat=" -1001", text=" -5"), NOW) == {
        "chat_id": "-1001",
        "method": "sendMessage",
        "text": "-5",
    }


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("x=HTML", "HTML"),
        ("x=true", True),
        ("x=17", 17),
        ('x="17"', "17"),
        ("x=", ""),
        ("x=a=b", "a=b"),
        ('x={"inline_keyboard": []}', {"inline_keyboard": []}),
        ("x={broken", "{broken"),
        ("x=NaN", "NaN"),
        ("x=-Infinity", "-Infinity"),
        (" x =y", "y"),
    ],
)
def test_a_parameter_is_json_or_else_a_text(written: str, value: object) -> None:
    assert parameter(written) == ("x", value)


@given(st.text())
def test_no_parameter_is_taken_for_a_number_that_json_has_not(value: str) -> None:
    _, read = parameter(f"x={value}")

    assert not isinstance(read, float) or math.isfinite(read)


@pytest.mark.parametrize("written", ["HTML", "=HTML", " =x", ""])
def test_a_parameter_without_a_name_is_refused(written: str) -> None:
    with pytest.raises(BadInputError, match="write name=value"):
        parameter(written)


@pytest.mark.parametrize("name", ["chat_id", "method", "priority", "bot", "dedup_key", "not_before"])
def test_what_has_its_own_option_is_no_parameter(name: str) -> None:
    with pytest.raises(BadInputError, match=f"--param: {name} is not given this way"):
        parameter(f"{name}=1")


def test_a_file_here_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cat.jpg").write_bytes(b"meow")
    monkeypatch.chdir(tmp_path)

    assert fields(document="cat.jpg")["document"] == File(path=str(tmp_path / "cat.jpg"))


@pytest.mark.parametrize("given", ["AgACAgIAAx", "https://example.org/cat.jpg"])
def test_what_telegram_has_is_named_as_it_is(given: str) -> None:
    assert fields(photo=given)["photo"] == given


@pytest.mark.parametrize("given", ["cat.jpg", "/no/such/cat", "no/such", "", "/"])
def test_a_path_without_a_file_is_refused_before_anything_is_put(given: str) -> None:
    with pytest.raises(BadInputError, match="--photo: "):
        fields(photo=given)


@pytest.mark.parametrize(
    "wanted",
    [
        {"photo": "a", "document": "b"},
        {"photo": "a", "method": "sendVideo"},
        {"at": "18:30", "delay": "90"},
    ],
)
def test_what_cannot_be_meant_together_is_refused(wanted: dict[str, str]) -> None:
    with pytest.raises(BadInputError):
        fields(**wanted)


@pytest.mark.parametrize(
    ("written", "seconds"), [("0", 0), ("90", 90), ("1.5", 1.5), ("30m", 1_800), ("2h", 7_200)]
)
def test_in_counts_from_now(written: str, seconds: float) -> None:
    assert fields(text="x", delay=written)["not_before"] == NOW + seconds


@pytest.mark.parametrize(
    ("written", "ahead"),
    [
        ("18:30", 6.5 * HOUR),
        ("18:30:30", 6.5 * HOUR + 30),
        ("9:00", 21 * HOUR),  # it has struck nine today
        ("12:00", DAY),
        ("2026-01-02T12:00", DAY),
        ("2026-01-02 12:00", DAY),
        ("2026-01-01T12:00Z", 2 * HOUR),
        ("2026-01-01T12:00+01:00", HOUR),
        ("2026-07-01T12:00", 181 * DAY - HOUR),  # summer time
    ],
)
def test_at_is_local_unless_it_names_its_zone(written: str, ahead: float) -> None:
    assert fields(text="x", at=written)["not_before"] == NOW + ahead


@pytest.mark.parametrize("written", ["", "soon", "25:00", "12:60", "2026-02-30", "9999999999"])
def test_a_time_that_is_none_is_refused(written: str) -> None:
    with pytest.raises(BadInputError, match=r"--at: .* is not a time"):
        fields(text="x", at=written)


def test_a_time_in_the_past_is_refused() -> None:
    with pytest.raises(BadInputError, match="is in the past"):
        fields(text="x", at="2025-12-31T12:00")


@pytest.mark.parametrize("written", ["", "soon", "-5", "1e9", "5 parsecs"])
def test_a_delay_that_is_none_is_refused(written: str) -> None:
    with pytest.raises(BadInputError, match="--in: "):
        fields(text="x", delay=written)


@pytest.mark.parametrize(("option", "given"), [("at", {"at": "2028-01-01T12:00"}), ("in", {"delay": "53w"})])
def test_a_time_more_than_a_year_ahead_is_refused(option: str, given: dict[str, str]) -> None:
    with pytest.raises(BadInputError, match=f"--{option}: the time is more than a year ahead"):
        fields(text="x", **given)


def test_expires_in_counts_from_when_it_is_put() -> None:
    assert fields(text="x", expires_in="30m")["expires_in"] == 1_800
    with pytest.raises(BadInputError, match="--expires-in: 'soon' is not a duration"):
        fields(text="x", expires_in="soon")


@pytest.mark.parametrize("depth", [101, 500, 6_000])
def test_a_parameter_nested_too_deeply_is_refused(depth: int) -> None:
    with pytest.raises(BadInputError, match="--param: the value of a is nested too deeply"):
        parameter(f"a={'[' * depth}{']' * depth}")


def test_a_number_beyond_all_numbers_is_a_text() -> None:
    assert parameter("a=1e999") == ("a", "1e999")


def test_the_home_of_nobody_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"--photo: .*'~nouser/x.jpg'"):
        fields(photo="~nouser/x.jpg")


def test_an_address_too_long_for_a_files_name_is_an_address() -> None:
    address = f"https://example.org/{'x' * 300}.jpg"

    assert fields(photo=address)["photo"] == address


def test_a_message_without_a_text_says_what_to_give() -> None:
    with pytest.raises(BadInputError, match="give TEXT, --photo or --document"):
        fields()


@pytest.mark.parametrize(
    "wanted",
    [
        {"text": "x", "params": ["text=5"]},
        {"params": ["text=x"]},
        {"photo": "AgACAgIAAx", "text": "x", "params": ["caption=y"]},
    ],
)
def test_the_text_is_no_parameter(wanted: dict[str, Any]) -> None:
    with pytest.raises(
        BadInputError, match=r"--param: (text|caption) is not given this way: write it as TEXT"
    ):
        fields(**wanted)
