"""Reports of errors hold no token wherever it stood, and nothing that a user wrote."""

import json
import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.incidents import Incident
from tidegate.ops.event_privacy import (
    clean_breadcrumb,
    clean_error,
    clean_transaction,
    incident_event,
    scrub_tree,
)

SECRET = "AAEEqwertyuiopasdfghjklzxcvbnm-_123"
TOKEN = f"42:{SECRET}"
WORDS = "tea-for-ann"

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20), st.just(TOKEN)
)
texts_with_tokens = st.builds(lambda a, b: f"{a} {TOKEN} {b}", st.text(max_size=9), st.text(max_size=9))
trees = st.recursive(
    leaves | texts_with_tokens,
    lambda below: (
        st.lists(below, max_size=4)
        | st.dictionaries(st.text(max_size=8) | texts_with_tokens, below, max_size=4)
        | st.tuples(below, below)
    ),
    max_leaves=25,
)


@given(trees)
def test_no_token_is_left_however_deep_it_stands(tree: object) -> None:
    assert SECRET not in json.dumps(scrub_tree(tree), ensure_ascii=False)


@given(trees)
def test_scrubbing_twice_changes_nothing_more(tree: object) -> None:
    once = scrub_tree(tree)
    assert scrub_tree(once) == once


@given(st.dictionaries(st.sampled_from(["exception", "extra", "tags", "request", "user", "spans"]), trees))
def test_events_of_any_shape_are_cleaned(event: dict[str, Any]) -> None:
    for clean in (clean_error(event, {}), clean_transaction(event)):
        assert SECRET not in json.dumps(clean, ensure_ascii=False)


def test_objects_become_their_scrubbed_text() -> None:
    class Order:
        def __str__(self) -> str:
            return f"order of {TOKEN}"

    assert scrub_tree({"it": Order(), "raw": b"1"}) == {"it": "order of 42:…", "raw": "b'1'"}


def test_the_query_of_an_address_is_left_out() -> None:
    found = scrub_tree(f"GET https://crm.example.org/people?name={WORDS}#top failed")
    assert found == "GET https://crm.example.org/people?… failed"


def exception(kind: str, text: str, line: str) -> dict[str, Any]:
    frame = {"filename": "shop.py", "context_line": line, "vars": {"text": WORDS}}
    return {"values": [{"type": kind, "value": text, "stacktrace": {"frames": [frame]}}]}


@pytest.mark.parametrize(
    ("kind", "text", "line", "sent"),
    [
        ("ValueError", f"invalid literal for int(): '{WORDS}'", "    int(message.text)", "…"),
        ("KeyError", f"'{WORDS}'", "    plans[name]", "…"),
        ("ValueError", "no such plan", '    raise ValueError("no such plan")', "no such plan"),
        ("ZeroDivisionError", "division by zero", "    1 / 0", "division by zero"),
        ("AttributeError", "'NoneType' object has no attribute 'text'", "    message.text", None),
        ("AttributeError", WORDS, "    raise AttributeError(text)", "…"),
    ],
)
def test_texts_of_exceptions_are_sent_if_they_are_of_the_source(
    kind: str, text: str, line: str, sent: str | None
) -> None:
    clean = clean_error({"exception": exception(kind, text, line)}, {})

    [one] = clean["exception"]["values"]
    assert one["value"] == (text if sent is None else sent)
    assert one["type"] == kind
    assert WORDS not in json.dumps(clean)


def test_texts_of_exceptions_are_sent_without_tokens_if_they_are_asked_for() -> None:
    event = {"exception": exception("ValueError", f"{WORDS} {TOKEN}", "    int(text)")}

    [one] = clean_error(event, {}, texts=True)["exception"]["values"]
    assert one["value"] == f"{WORDS} 42:…"
    assert "vars" not in one["stacktrace"]["frames"][0]


def test_of_a_request_only_its_method_is_sent() -> None:
    request = {"method": "POST", "url": f"https://shop/{WORDS}", "headers": {"Cookie": WORDS}, "data": WORDS}

    clean = clean_error({"request": request, "user": {"username": WORDS}}, {})

    assert clean == {"request": {"method": "POST"}}


def line(name: str, message: str, *args: object, level: int = logging.ERROR) -> dict[str, Any]:
    """The event of a log line that is written where this is called, as the SDK makes it."""
    place = sys._getframe(1).f_lineno  # noqa: SLF001
    record = logging.LogRecord(name, level, __file__, place, message, args, None)
    entry = {"message": message, "formatted": record.getMessage(), "params": args}
    event = {"logentry": entry, "extra": {"who": WORDS}}
    return clean_error(event, {"log_record": record})


def test_the_values_of_a_log_line_are_left_out() -> None:
    assert line("shop", "payment of %s failed", WORDS) == {"logentry": {"message": "payment of %s failed"}}


def test_a_line_without_values_is_sent_as_it_is_written() -> None:
    assert line("shop", "payment\nfailed") == {"logentry": {"message": "payment\nfailed"}}
    long = line(
        "shop",
        "payment"
        " failed",
    )  # fmt: skip
    assert long == {"logentry": {"message": "payment failed"}}


@pytest.mark.parametrize("values", [(), (7,)])
def test_a_line_that_is_put_together_is_named_by_its_place(values: tuple[int, ...]) -> None:
    text = f"payment of {WORDS} failed" + " %s" * len(values)
    message = line("shop", text, *values)["logentry"]["message"]
    assert message.startswith("a log line at test_event_privacy.py:")


def test_lines_of_one_template_about_different_errors_are_different_groups() -> None:
    def reported(place: str) -> dict[str, Any]:
        described = f"KeyError: '{WORDS}' (bot/{place})"
        return line("tidegate.inbound", "%s is parked: %s%s", "update 7 of bot 42", described, "")

    one, other = reported("pay.py:42"), reported("buy.py:7")
    assert one["fingerprint"] == ["tidegate.inbound", "%s is parked: %s%s", "KeyError", "bot/pay.py:42"]
    assert one["fingerprint"] != other["fingerprint"]
    assert one["tags"] == {"error": "KeyError", "place": "bot/pay.py:42"}
    assert WORDS not in json.dumps(one)


def test_the_traceback_in_a_line_becomes_a_stack_without_the_text_of_its_error() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/srv/bot.py", line 7, in main\n'
        "    await pay()\n"
        '  File "/srv/pay.py", line 42, in on_pay\n'
        f'    raise shop.errors.PlanError(f"{{text}}")\n'
        f"shop.errors.PlanError: {WORDS}\nand more {WORDS}"
    )
    clean = line("tidegate.worker", "message %s could not be sent:\n%s", "01J", trace)

    [one] = clean["exception"]["values"]
    assert (one["type"], one["value"]) == ("PlanError", "…")
    assert [(f["filename"], f["lineno"], f["function"]) for f in one["stacktrace"]["frames"]] == [
        ("/srv/bot.py", 7, "main"),
        ("/srv/pay.py", 42, "on_pay"),
    ]
    assert WORDS not in json.dumps(clean)


def test_critical_lines_about_the_store_are_sent_whole() -> None:
    clean = line("tidegate.store", "%s", "bot.db is gone: 7 messages are lost", level=logging.CRITICAL)
    assert clean["logentry"] == {"message": "bot.db is gone: 7 messages are lost"}


def test_breadcrumbs_are_calls_over_http_only() -> None:
    data = {"url": f"https://api.example.org/bot{TOKEN}/x?q={WORDS}", "http.query": WORDS, "status_code": 200}
    crumb = clean_breadcrumb({"type": "http", "category": "httplib", "message": WORDS, "data": data})

    assert crumb == {
        "type": "http",
        "category": "httplib",
        "message": None,
        "data": {"url": "https://api.example.org/bot42:…/x?…", "status_code": 200},
    }
    assert clean_breadcrumb({"type": "log", "message": WORDS}) is None
    assert clean_breadcrumb({"type": "redis", "message": f"SET {WORDS}"}) is None


def test_spans_say_what_was_called_and_not_with_which_data() -> None:
    spans = [
        {
            "op": "db.redis",
            "description": f"SET '{WORDS}'",
            "data": {"redis.key": WORDS, "db.system": "redis"},
        },
        {"op": "http.client", "description": f"POST https://host/bot{TOKEN}/x?q={WORDS}"},
    ]
    event = {"transaction": f"/people/{WORDS}", "transaction_info": {"source": "url"}, "spans": spans}

    clean = clean_transaction(event)

    assert clean["transaction"] == "…"
    assert clean["spans"][0] == {
        "op": "db.redis",
        "description": "SET",
        "data": {"db.system": "redis"},
        "tags": {},
    }
    assert clean["spans"][1]["description"] == "POST https://host/bot42:…/x?…"


def test_an_incident_is_an_event_of_its_group_without_its_chat() -> None:
    text = f"loop blocked 0.4 s in pay.py:42 https://host/bot{TOKEN}/x, chat -1001"
    event = incident_event(
        Incident(kind="loop_blocked", text=text, group="loop_blocked pay.py:42", chat=-1001, count=3)
    )

    assert event["message"] == "loop blocked 0.4 s in pay.py:42 https://host/bot42:…/x, chat …"
    assert event["fingerprint"] == ["tidegate", "loop_blocked pay.py:42"]
    assert event["tags"] == {"kind": "loop_blocked"}
    assert event["extra"] == {"count": 3}
