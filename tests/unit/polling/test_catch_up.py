"""News that scans and searches find for waiting and for watched subscribers."""

import pytest

from tidegate.polling.catch_up import PolledSubscribers, TableScan, news_of_met, resolve_doubts
from tidegate.polling.source import SourceRow
from tidegate.polling.subscriptions import NewsKind, Subscription


def row(key: str, *, met: bool, record: str | None = None) -> SourceRow:
    return SourceRow(record or key, key, met=met, changed=1.0, value={"key": key})


def people(waiting: str = "", watched: str = "") -> PolledSubscribers:
    return PolledSubscribers(
        {key: Subscription(key) for key in waiting}, {key: Subscription(key) for key in watched}
    )


@pytest.mark.parametrize(
    ("there", "rows", "is_expected", "kind"),
    [
        (people(waiting="a"), [row("a", met=True)], True, "met"),
        (people(waiting="a"), [row("a", met=False)], True, None),
        (people(waiting="a"), [], True, "gone"),
        (people(waiting="a"), [], False, None),  # it may appear yet
        (people(watched="a"), [row("a", met=True)], True, None),
        (people(watched="a"), [row("a", met=False)], True, "reversed"),
        (people(watched="a"), [row("a", met=False), row("a", met=True, record="b")], True, None),
        (people(watched="a"), [], False, "gone"),  # it was there when it was told
        (people(), [], True, None),  # unsubscribed meanwhile
        (people(), [row("a", met=True)], True, None),
    ],
)
def test_a_search_decides(
    there: PolledSubscribers,
    rows: list[SourceRow],
    is_expected: bool,  # noqa: FBT001
    kind: NewsKind | None,
) -> None:
    news = resolve_doubts(["a"], rows, there, ["a"] if is_expected else [])
    assert [one.kind for one in news] == ([kind] if kind else [])


def test_a_key_with_several_records_is_told_once() -> None:
    rows = [row("a", met=True, record="1"), row("a", met=True, record="2"), row("b", met=False)]
    assert [news.key for news in news_of_met(rows, people(waiting="ab").waiting)] == ["a"]


def test_a_scan_doubts_who_is_absent_and_who_did_not_stay_true_and_nobody_who_left() -> None:
    scan = TableScan(0.0)
    scan.note([row("a", met=False), row("x", met=False)], people(waiting="abc", watched="wvu"))
    scan.note([row("w", met=False), row("v", met=True)], people(waiting="ab", watched="wvu"))
    assert scan.doubts(people(waiting="abn", watched="wvu")) == ["b", "u", "w"]
    assert set(scan.known) == {"a", "w", "v"}  # and nothing of the rest of the table
