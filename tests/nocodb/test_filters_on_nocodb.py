"""A filter that is built from values selects what it says, or is refused before it is sent."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from nocodb.conftest import Ask
from nocodb.judging import matches
from nocodb.places import Place
from tidegate.errors import BadInputError
from tidegate.upstream.nocodb.client import NocoDb
from tidegate.upstream.nocodb.table import Table
from tidegate.upstream.nocodb.where import (
    Where,
    all_of,
    any_of,
    before,
    checked,
    eq,
    filter_text,
    gt,
    gte,
    is_blank,
    like,
    lt,
    lte,
    negate,
    neq,
    one_of,
    since,
)

NINE = datetime(2026, 1, 5, 9, tzinfo=UTC)
AWKWARD = [
    *(
        "plain",
        "a,b",
        "a (b)",
        "(a)",
        "a)b",
        "((a",
        "a))",
        "it's",
        'say "x"',
        "'q'",
        '"q"',
        "",
        "null",
        "NULL",
    ),
    *(
        "back\\slash",
        "end\\",
        "%",
        "100%",
        "un_der",
        "a~or(b",
        "~and",
        "~not(x)",
        " lead",
        "trail ",
        "two words",
    ),
    *(
        "Ключ",
        "日本",
        "😀",
        "true",
        "0",
        "a+b",
        "a&b=c",
        "a#b",
        "a\nb",
        "a\tb",
        "*",
        "checked",
        "a,eq,b",
        "@x",
    ),
    *("ABC", "abc", "'", "''", "\\'", "[a]", "a/b", "exactDate", "both ' and \"", "5", "05", "a;b", "`b`"),
]


async def orders(table: Table, where: Where) -> list[Any]:
    return sorted(row["OrderId"] for row in (await table.list(where, limit=1000)).rows)


async def ids(table: Table, where: Where) -> list[int]:
    return [row["Id"] for row in (await table.list(where, sort=("Id",), limit=1000)).rows]


async def test_every_text_is_found_as_it_is(table: Table) -> None:
    await table.create([{"OrderId": text} for text in AWKWARD])
    for text in AWKWARD:
        assert await orders(table, eq("OrderId", text)) == [text]
        assert await orders(table, one_of("OrderId", [text])) == [text]


async def test_texts_are_found_together_or_the_filter_is_refused(table: Table) -> None:
    await table.create([{"OrderId": text} for text in AWKWARD])
    refused = []
    for text in AWKWARD:
        some = sorted({text, "plain", "ABC"})
        try:
            assert await orders(table, one_of("OrderId", [text, "ABC", "plain"])) == some
            assert await orders(table, one_of("OrderId", ["ABC", "plain", text])) == some
            two = any_of(all_of(eq("OrderId", text), negate(checked("Paid"))), all_of(*pair("ABC", "Paid")))
            assert await orders(table, two) == sorted({text, "ABC"})
        except BadInputError:
            refused.append(text)
    assert refused == ["both ' and \""]


def pair(order: str, box: str) -> tuple[Where, Where]:
    return eq("OrderId", order), negate(checked(box))


async def test_as_many_as_fit_one_address_are_found(table: Table) -> None:
    texts = [f"order {number:04d}, «{'x' * (number % 30)}»" for number in range(400)]
    await table.create([{"OrderId": text, "Paid": True} for text in texts])
    most = table.most("OrderId", texts, and_=checked("Paid"), fields=("OrderId", "Paid"))
    assert 50 < most < 400
    where = all_of(checked("Paid"), one_of("OrderId", texts[:most]))
    found = [row async for rows in table.pages(where, fields=("OrderId", "Paid"), size=60) for row in rows]
    assert [row["OrderId"] for row in found] == texts[:most]


ROWS: Sequence[dict[str, Any]] = [
    {"OrderId": "a", "Paid": True, "Amount": 1, "Sum (USD)": 1, "Due": "2026-01-05 08:59:59+00:00"},
    {"OrderId": "b", "Paid": False, "Amount": 2, "Sum (USD)": 5, "Due": "2026-01-05 09:00:00+00:00"},
    {"OrderId": "(c)", "Paid": None, "Amount": 3, "Sum (USD)": None, "Due": "2026-01-05 09:00:01+00:00"},
    {"OrderId": "", "Paid": True, "Amount": None, "Sum (USD)": 7, "Due": None},
    {"OrderId": None, "Paid": False, "Amount": 5, "Sum (USD)": 5, "Due": "2026-01-06 12:00:00+03:00"},
    {"OrderId": "d,e", "Paid": True, "Amount": -2, "Sum (USD)": None, "Due": "2025-12-31 23:59:59+00:00"},
]
LEAVES = [
    *(checked("Paid"), is_blank("OrderId"), is_blank("Amount"), is_blank("Due")),
    *(eq("OrderId", "a"), eq("OrderId", "(c)"), eq("OrderId", ""), neq("OrderId", "d,e"), neq("Amount", 2)),
    *(one_of("OrderId", ["a", "b"]), one_of("OrderId", ["d,e", "(c)"]), one_of("Amount", [1, 3, 5])),
    *(gt("Amount", 2), gte("Amount", 2), lt("Amount", 2), lte("Amount", 2), gt("Sum (USD)", 4)),
    *(eq("Sum (USD)", 5), like("OrderId", "B"), since("Due", NINE), before("Due", NINE), gt("Id", 3)),
]


def tree(draw: random.Random, depth: int) -> Where:
    kind = draw.choice(["leaf", "all", "any", "not"] if depth else ["leaf"])
    if kind == "leaf":
        return draw.choice(LEAVES)
    if kind == "not":
        return negate(tree(draw, depth - 1))
    parts = [tree(draw, depth - 1) for _ in range(draw.randint(1, 3))]
    return all_of(*parts) if kind == "all" else any_of(*parts)


async def test_conditions_groups_and_negations_select_what_they_say(table: Table) -> None:
    await table.create(ROWS)
    rows = (await table.list(sort=("Id",))).rows
    draw = random.Random(8)
    singles = [condition for leaf in LEAVES for condition in (leaf, negate(leaf), negate(negate(leaf)))]
    trees = [tree(draw, depth) for depth in (1, 2, 3, 4) for _ in range(20)]
    for where in [*singles, *trees]:
        found = (await table.list(where, sort=("Id",))).rows
        expected = [row["Id"] for row in rows if matches(where, row)]
        assert [row["Id"] for row in found] == expected, filter_text(where)
        assert len(expected) + len(await ids(table, negate(where))) == len(rows), filter_text(where)


async def test_a_count_takes_the_same_filters(table: Table) -> None:
    await table.create(ROWS)
    assert await table.count() == 6
    assert await table.count(all_of(checked("Paid"), eq("OrderId", "d,e"))) == 1


@pytest.fixture
def in_moscow(place: Place) -> str:
    return place.make_table("zoned", zone="Europe/Moscow")


async def test_times_are_of_utc_whatever_the_zone_of_the_column(nocodb: NocoDb, in_moscow: str) -> None:
    table = nocodb.table(in_moscow)
    await table.create(ROWS)
    assert await ids(table, since("Due", NINE)) == [2, 3, 5]
    assert await ids(table, before("Due", NINE)) == [1, 6]
    assert await ids(table, all_of(since("Due", NINE), eq("OrderId", "(c)"))) == [3]
    assert await ids(table, since("Due", NINE.timestamp() + 0.7)) == [2, 3, 5]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("(Paid,is,checked)", [1, 2, 3, 4, 5, 6]),  # ignored
        ("(Due,is,null)", [1, 2, 3, 4, 5, 6]),  # ignored
        ("(Due,gte,exactDate,)", [1, 2, 3, 4, 5, 6]),  # ignored
        ("~not((Amount,eq,1)~or(Amount,eq,2))", [1, 2]),  # ~not is ignored
        ("@~not((Amount,eq,1)~or(Amount,eq,2))", [1, 2]),  # likewise
        ("@(Amount,eq,1)~or((Amount,eq,2))", []),  # ~or becomes ~and
        ("~not(Amount,eq,1)", [2, 3, 5, 6]),  # not those without a value
        ("(Due,eq,exactDate,2026-01-05%2009:00:00)", [1, 2, 3]),  # the whole day
        ("(OrderId,like,)", [1, 2, 3, 4, 6]),  # any text
        ("(OrderId,eq,)", [4]),
        ("@", [1, 2, 3, 4, 5, 6]),
    ],
)
async def test_what_nocodb_reads_otherwise_than_written(
    table: Table, ask: Ask, where: str, expected: list[int]
) -> None:
    """Why filters are never pasted. None of these is ever sent by the client."""
    await table.create(ROWS)
    status, page = await ask("GET", f"?sort=Id&where={where}")
    assert (status, [row["Id"] for row in page["list"]]) == (200, expected)


@pytest.mark.parametrize(
    ("where", "on_sqlite", "on_postgres"),
    [
        ("(Paid,eq,true)", [], [1, 4, 6]),
        ("(Due,gt,exactDate,2026-01-05%2009:00:00)", [2, 3, 5], [3, 5]),
        ("(Due,lte,exactDate,2026-01-05%2009:00:00)", [1, 6], [1, 2, 6]),
    ],
)
async def test_what_depends_on_the_database(
    place: Place, table: Table, ask: Ask, where: str, on_sqlite: list[int], on_postgres: list[int]
) -> None:
    """None of these is ever sent by the client, either."""
    await table.create(ROWS)
    status, page = await ask("GET", f"?sort=Id&where={where}")
    expected = on_postgres if place.postgres else on_sqlite
    assert (status, [row["Id"] for row in page["list"]]) == (200, expected)


async def test_groups_side_by_side_need_the_other_grammar(ask: Ask) -> None:
    two = "((Amount,eq,1)~or(Amount,eq,2))~or((Amount,eq,3)~or(Amount,eq,4))"
    assert (await ask("GET", f"?where={two}"))[0] == 422
    assert (await ask("GET", f"?where=@{two}"))[0] == 200
