"""The parts of `tidegate bot` that need no store."""

import pytest
from rich.console import Console

from tidegate.cli.bot import bots_table, known_bot, number_of
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.errors import BadInputError, NotDeliveredError

URL = "https://api.telegram.org"


def test_a_bot_that_telegram_knows_is_told() -> None:
    body = {"ok": True, "result": {"id": 42, "username": "shop_bot"}}

    assert known_bot(ApiAnswer(200, body), URL)["username"] == "shop_bot"


@pytest.mark.parametrize("status", [401, 404])
def test_a_token_that_telegram_does_not_know_is_bad_input(status: int) -> None:
    body = {"ok": False, "error_code": status, "description": "Unauthorized"}

    with pytest.raises(BadInputError, match=r"knows no bot with this token \(Unauthorized\)"):
        known_bot(ApiAnswer(status, body), URL)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (NoAnswer(left=False, reason="dns"), "dns"),
        (NoAnswer(left=True, reason="timeout"), "timeout"),
        (ApiAnswer(502, None), "status 502"),
        (ApiAnswer(404, None), "status 404"),  # a web server that is no Bot API
        (ApiAnswer(429, {"ok": False, "description": "Too Many Requests"}), "status 429"),
        (ApiAnswer(200, {"ok": True, "result": True}), "status 200"),
    ],
)
def test_a_telegram_that_cannot_be_asked_is_no_verdict(answer: ApiAnswer | NoAnswer, word: str) -> None:
    with pytest.raises(NotDeliveredError, match=rf"\({word}\).*--no-check"):
        known_bot(answer, URL)


@pytest.mark.parametrize("written", ["42", "42:…", " 42 ", "42:some-token"])
def test_a_bot_is_named_by_its_number(written: str) -> None:
    assert number_of(written) == 42


@pytest.mark.parametrize("written", ["", "hush", "-42", "hush:42", "4" * 20])
def test_what_is_no_number_is_not_repeated(written: str) -> None:
    with pytest.raises(BadInputError, match="ID must be a bot's number") as caught:
        number_of(written)
    assert "hush" not in str(caught.value)


def test_a_table_of_bots_fits_a_small_terminal() -> None:
    bot = {"bot": 7_123_456_789, "api_url": "https://bots." + "example." * 12 + "org"}
    console = Console(width=80)
    with console.capture() as capture:
        console.print(bots_table([bot | {"waiting": 1_000_000, "dead": 12, "parked": 3}]))

    shown = capture.get()
    assert max(map(len, shown.splitlines())) <= 80
    for part in ("7123456789:…", "1,000,000", "12", "3"):
        assert part in shown
