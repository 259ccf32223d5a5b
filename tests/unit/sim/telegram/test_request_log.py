from hypothesis import given
from hypothesis import strategies as st

from tidegate.sim.telegram.request_log import LoggedCall, TelegramRequestLog


def entry(status: int = 200, method: str = "sendMessage") -> LoggedCall:
    return LoggedCall(1_767_603_600.0, 42, 7, method, status, 1, "hi")


@given(st.lists(st.integers(0, 8), max_size=30))
def test_order_breaches_and_doubles_are_counted_as_defined(numbers: list[int]) -> None:
    ledger = TelegramRequestLog()
    breaches = doubles = 0
    for i, number in enumerate(numbers):
        ledger.accept(42, 7, f"part #{number}")
        before = numbers[:i]
        doubles += number in before
        breaches += number not in before and any(earlier > number for earlier in before)
    assert (ledger.out_of_order, ledger.doubled) == (breaches, doubles)
    assert ledger.accepted == len(numbers)


def test_sequences_of_other_chats_bots_and_lines_are_apart() -> None:
    ledger = TelegramRequestLog()
    for bot, chat, text in [(1, 1, "#5"), (1, 2, "#5"), (2, 1, "#5"), (1, 1, "a #low:5"), (1, 1, "#high:1")]:
        ledger.accept(bot, chat, text)
    assert (ledger.out_of_order, ledger.doubled) == (0, 0)


def test_text_without_a_tag_at_its_end_is_not_followed() -> None:
    ledger = TelegramRequestLog()
    for _ in range(2):
        ledger.accept(42, 7, "#1 is the best")
        ledger.accept(42, 7, "#love")
    assert (ledger.accepted, ledger.out_of_order, ledger.doubled) == (4, 0, 0)


def test_the_report_has_rates_and_peaks() -> None:
    ledger = TelegramRequestLog()
    for at in (0.0, 0.5, 0.9, 4.0):
        ledger.record(at, entry())
    ledger.record(4.0, entry(status=400))
    ledger.refuse("bot")
    report = ledger.report()
    assert report["requests"] == 5
    assert report["peak_rps"] == 3
    assert report["avg_rps"] == 1.25
    assert report["seconds"] == 4.0
    assert report["refused"] == 1
    assert report["refused_by"] == {"bot": 1}
    assert report["statuses"] == {"200": 4, "400": 1}


def test_clearing_starts_again() -> None:
    ledger = TelegramRequestLog()
    ledger.record(0.0, entry())
    ledger.accept(42, 7, "#1")
    ledger.clear()
    ledger.accept(42, 7, "#1")
    assert ledger.report()["requests"] == 0
    assert ledger.doubled == 0


def test_polls_are_counted_but_say_nothing_about_speed() -> None:
    ledger = TelegramRequestLog()
    for at in (0.0, 1.0):
        ledger.record(at, entry())
    for _ in range(50):
        ledger.record(9.0, entry(method="getUpdates"))
    report = ledger.report()
    assert (report["requests"], report["peak_rps"], report["avg_rps"], report["seconds"]) == (2, 1, 2.0, 1.0)
    assert report["methods"] == {"getUpdates": 50, "sendMessage": 2}
    assert report["statuses"] == {"200": 52}
