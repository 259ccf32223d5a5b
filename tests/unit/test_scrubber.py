import logging
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import scrubber
from tidegate.errors import BadInputError, DeadError, StoreError
from tidegate.scrubber import LOGGERS, MAX_VALUES, contains_token, hide, hide_password, scrub_secrets

SOURCE = Path(scrubber.__file__).parent
SECRET = "AAEEqwertyuiopasdfghjklzxcvbnm-_123"
TOKEN = f"42:{SECRET}"
API_TOKEN = "tg_Ab3dE9" + "x" * 37

url_safe = st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
secrets = st.text(url_safe, min_size=20, max_size=45)


@given(st.integers(1, 10**15 - 1), secrets, st.text(max_size=15), st.text(max_size=15))
def test_a_token_is_hidden_wherever_it_stands(bot: int, secret: str, before: str, after: str) -> None:
    for token in (f"{bot}:{secret}", quote(f"{bot}:{secret}", safe=""), f"bot{bot}%253a{secret}/getMe"):
        assert secret not in scrub_secrets(before + " " + token + " " + after)


@given(
    st.sampled_from(["tg_", "tgc_", "tgl_", "tgs_"]),
    st.text(url_safe, min_size=43, max_size=43),
    st.text(max_size=15),
    st.text(max_size=15),
)
def test_an_api_token_a_code_and_a_cookie_are_hidden_wherever_they_stand(
    kind: str, secret: str, before: str, after: str
) -> None:
    assert secret[6:] not in scrub_secrets(before + kind + secret + after)


@given(st.text())
def test_scrubbing_twice_changes_nothing_more(text: str) -> None:
    assert scrub_secrets(scrub_secrets(text)) == scrub_secrets(text)


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        (
            f"POST https://api.telegram.org/bot{TOKEN}/sendMessage",
            "POST https://api.telegram.org/bot42:…/sendMessage",
        ),
        ("redis://:hunter2@localhost:6379/0", "redis://:…@localhost:6379/0"),
        ("postgresql://me:p@ss@db/app", "postgresql://me:…@db/app"),
        ("http://user:pw@proxy:3128", "http://user:…@proxy:3128"),
        ("redis://db?password=hunter2&db=1", "redis://db?password=…&db=1"),
        (f"Authorization: Bearer {API_TOKEN}", "Authorization: Bearer tg_Ab3dE9…"),
        (f"Cookie: a=1; tidegate=tgs_{'y' * 43}; b=2", "Cookie: a=1; tidegate=tgs_yyyyyy…; b=2"),
        ("GET /login?code=hunter2&next=/ HTTP/1.1", "GET /login?code=…&next=/ HTTP/1.1"),
        (f"'Authorization': 'Bearer {SECRET}'", "'Authorization': 'Bearer …'"),
    ],
)
def test_secrets_are_known_by_their_form(text: str, scrubbed: str) -> None:
    assert scrub_secrets(text) == scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "at 12:30:45 of 2026-11-18",
        "http://127.0.0.1:8080/readyz was asked by someone@example.org",
        "chat 1001: message 5 (normal)",
        "flow 42:1001:1001",
        "handler tg_on_successful_payment, token tg_Ab3dE9",
        "the bearer token is missing",
    ],
)
def test_ordinary_texts_stay(text: str) -> None:
    assert scrub_secrets(text) == text


def test_other_secrets_are_known_by_their_value_also_in_an_address() -> None:
    hide("a secret/of a hook")

    assert scrub_secrets("got a secret/of a hook") == "got …"
    assert scrub_secrets("got a%20secret%2Fof%20a%20hook") == "got …"


def test_the_password_of_an_address_is_hidden_alone_too() -> None:
    hide_password("redis://:hunter%4022@localhost/0")

    assert scrub_secrets("hunter@22 or hunter%4022 is wrong") == "… or … is wrong"


def test_short_values_would_hide_ordinary_words() -> None:
    hide("redis", None, "")

    assert scrub_secrets("redis is away") == "redis is away"


def test_hidden_values_are_bounded() -> None:
    hide(*(f"secret number {n}" for n in range(3 * MAX_VALUES)))

    assert len(scrubber._values) == MAX_VALUES  # noqa: SLF001


def test_an_api_url_can_be_asked_for_a_token() -> None:
    assert contains_token(f"https://proxy/bot{TOKEN}")
    assert not contains_token("https://proxy/bot{token}/{method}")


def test_every_logger_of_tidegate_is_scrubbed() -> None:
    sources = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    used = set(re.findall(r'getLogger\(\s*"(tidegate[^"]*)"', sources))

    assert used == set(LOGGERS)
    for name in used:
        assert any(isinstance(one, scrubber.SecretFilter) for one in logging.getLogger(name).filters)


@pytest.mark.parametrize("name", LOGGERS)
def test_a_log_line_shows_no_token_whatever_it_is_made_of(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger(name)
    caplog.set_level(logging.DEBUG, name)

    log.debug("in the text %s", TOKEN)
    log.debug("in an object %r", {"url": f"https://host/bot{TOKEN}/getMe"})
    log.debug(f"in the format {TOKEN}")  # noqa: G004
    try:
        int(TOKEN)
    except ValueError:
        log.exception("in a traceback")
        log.info("in a stack", stack_info=True)

    assert caplog.text.count("42:…") == 4
    assert SECRET not in caplog.text
    assert SECRET not in "".join(str(vars(record)) for record in caplog.records)


def test_a_record_without_a_secret_keeps_its_arguments(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("tidegate").warning("%s of %d", "one", 2)

    assert caplog.records[0].args == ("one", 2)


def test_a_text_that_does_not_fit_its_arguments_is_the_handlers_matter() -> None:
    record = logging.LogRecord("tidegate", logging.WARNING, "", 1, "%d", ("no number",), None)

    assert scrubber.SecretFilter().filter(record)


def test_the_applications_own_log_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("shop").warning("its own business: %s", TOKEN)

    assert TOKEN in caplog.text


def test_a_formatter_of_a_whole_process_scrubs_lines_of_any_logger() -> None:
    record = logging.makeLogRecord({"msg": f"POST /bot{TOKEN}/getMe", "name": "httpx"})

    assert scrubber.ScrubbedFormatter("%(name)s: %(message)s").format(record) == "httpx: POST /bot42:…/getMe"


def test_no_error_shows_a_token() -> None:
    errors = [
        BadInputError(f"{TOKEN} cannot be used"),
        StoreError(f"/srv/{TOKEN}/tidegate.db is read-only"),
        DeadError(method="sendMessage", chat_id=1, reason="bad_request", description=f"POST /bot{TOKEN}/x"),
    ]
    for error in errors:
        assert SECRET not in str(error) + repr(error) + str(error.args) + str(vars(error))
        assert "42:…" in str(error)


def test_a_line_with_half_a_character_can_be_written(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("tidegate.worker").warning("a proxy said %s", "\ud83d oops")
    assert caplog.messages == ["a proxy said \\ud83d oops"]
    caplog.text.encode()
