"""`where`: both grammars, their quirks, and what conditions select."""

from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sim.nocodb import SimulatedNocoDb
from tidegate.sim.nocodb.answers import NocoDbApiError
from tidegate.sim.nocodb.table import SimulatedTable
from tidegate.sim.nocodb.where import compile_where
from tidegate.sim.virtual_time import VirtualClock
from unit.sim.nocodb.noco_tables import COLUMNS, Ask

TOKYO = ZoneInfo("Asia/Tokyo")
ROWS: Sequence[dict[str, Any]] = [
    {"OrderId": "A-1", "Amount": 10, "Paid": True, "Due": "2026-01-05 09:30:00"},
    {"OrderId": "a,b (c)", "Amount": 9, "Paid": False, "Due": "2026-01-05 10:00:00"},
    {"OrderId": "", "Amount": None, "Paid": None, "Due": None},
    {"OrderId": None, "Amount": 100, "Paid": True, "Due": "2026-01-06 00:00:00"},
]


def select(where: str, *, postgres: bool = False) -> list[int]:
    table = SimulatedTable("m1", "orders", key="Id", columns=COLUMNS, postgres=postgres)
    table.insert(ROWS, 1_767_603_600.0)
    return [row.key for row in compile_where(where, table)(list(table.rows.values()))]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("(OrderId,eq,A-1)", [1]),
        ("(OrderId,eq,a-1)", []),
        ("(OrderId,eq,a,b (c))", [2]),
        ("(OrderId,eq,)", [3]),
        ("(OrderId,eq,null)", []),
        ("(OrderId,neq,A-1)", [2, 3, 4]),
        ("(OrderId,in,A-1,x)", [1]),
        ("(OrderId,in,a,b (c))", []),
        ("(OrderId,anyof,B (C,z)", [2]),
        ("(OrderId,nanyof,B (C,z)", [1, 3, 4]),
        ("(OrderId,like,a)", [1, 2]),
        ("(OrderId,like,a%)", [1, 2]),
        ("(OrderId,like,%1)", [1]),
        ("(OrderId,like,A_1)", [1]),
        ("(OrderId,like,)", [1, 2, 3]),
        ("(OrderId,nlike,a)", [3, 4]),
        ("(OrderId,blank)", [3, 4]),
        ("(OrderId,is,blank)", [3, 4]),
        ("(OrderId,isblank)", [3, 4]),
        ("(OrderId,notblank)", [1, 2]),
        ("(OrderId,null)", [4]),
        ("(OrderId,is,null)", [4]),
        ("(OrderId,notnull)", [1, 2, 3]),
        ("(OrderId,empty)", [3]),
        ("(OrderId,notempty)", [1, 2, 4]),
        ("(Amount,gt,9)", [1, 4]),
        ("(Amount,gte,9)", [1, 2, 4]),
        ("(Amount,lt,10)", [2]),
        ("(Amount,le,10)", [1, 2]),
        ("(Amount,eq,10)", [1]),
        ("(Amount,in,9,abc,100)", [2, 4]),
        ("(Id,gt,2)", [3, 4]),
        ("(Id,gt,abc)", []),
        ("(Amount,eq,10)garbage", [1]),
        ("", [1, 2, 3, 4]),
        ("@", [1, 2, 3, 4]),
    ],
)
def test_a_condition_selects_what_the_real_one_selects(where: str, found: list[int]) -> None:
    assert select(where) == found


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("(Paid,checked)", [1, 4]),
        ("(Paid,notchecked)", [2, 3]),
        ("(Paid,eq,1)", [1, 4]),
        ("(Paid,eq,true)", []),  # SQLite compares 1 with the text
        ("(Paid,is,true)", [1, 4]),
        ("(Paid,is,checked)", [1, 2, 3, 4]),  # passed over in silence
        ("(Paid,neq,1)", [2, 3]),
        ("(Paid,blank)", [3]),
    ],
)
def test_a_checkbox_is_to_be_asked_whether_it_is_checked(where: str, found: list[int]) -> None:
    assert select(where) == found


def test_postgres_knows_true_and_gives_it() -> None:
    assert select("(Paid,checked)", postgres=True) == [1, 4]
    assert select("(Paid,eq,true)", postgres=True) == [1, 4]
    assert select("(Paid,eq,false)", postgres=True) == [2]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("(Due,gte,exactDate,2026-01-05 10:00:00)", [2, 4]),
        ("(Due,gt,exactDate,2026-01-05 10:00:00)", [2, 4]),  # SQLite compares texts, and one is longer
        ("(Due,lt,exactDate,2026-01-05 10:00:00)", [1]),
        ("(Due,lte,exactDate,2026-01-05 10:00:00)", [1]),
        ("(Due,eq,exactDate,2026-01-05 07:00:00)", [1, 2]),  # the whole day
        ("(Due,neq,exactDate,2026-01-05)", [3, 4]),
        ("(Due,gt,exactDate,2026-01-05)", [4]),
        ("(Due,gte,exactDate,2026-01-05T10:00:00Z)", [2, 4]),
        ("(Due,gte,exactDate,2026-01-05 10:00:00.999+00:00)", [2, 4]),
        ("(Due,gte,exactDate,2026-01-05 12:00:00+02:00)", [2, 4]),
        ("(Due,gte,exactDate,)", [1, 2, 3, 4]),
        ("(Due,blank)", [3]),
        ("(Due,notnull)", [1, 2, 4]),
        ("(Due,is,null)", [1, 2, 3, 4]),  # passed over in silence
        ("(UpdatedAt,is,null)", [1, 2, 3, 4]),
        ("(UpdatedAt,null)", [1, 2, 3, 4]),
        ("(UpdatedAt,gte,exactDate,1970-01-01 00:00:00)", []),
        ("~not(Due,gte,exactDate,2026-01-05 10:00:00)", [1]),
        ("~not(Due,neq,exactDate,2026-01-05)", [1, 2]),
    ],
)
def test_times_are_asked_for_by_exact_date(where: str, found: list[int]) -> None:
    assert select(where) == found


def test_postgres_compares_times_and_not_texts() -> None:
    assert select("(Due,gt,exactDate,2026-01-05 10:00:00)", postgres=True) == [4]
    assert select("(Due,lte,exactDate,2026-01-05 10:00:00)", postgres=True) == [1, 2]


@pytest.mark.parametrize("at", ["", "@"])
@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("(Id,eq,4)~or(Id,gt,1)~and(Amount,lt,10)", [2, 4]),  # and binds closer
        ("((Id,eq,4)~or(Id,gt,1))~and(Amount,lt,10)", [2]),
        ("(Amount,lt,50)~and((Id,eq,1)~or(Id,eq,4))", [1]),
        ("(Id,gt,1)~and((Paid,checked)~or((Amount,eq,9)~and(OrderId,notblank)))", [2, 4]),
        ("~not(OrderId,eq,A-1)", [2, 3]),  # null is not "not equal" to SQL
        ("~not(OrderId,neq,A-1)", [1]),
        ("~not(Id,eq,1)~and(Id,lt,3)", [2]),
        ("~not((Id,eq,1)~or(Id,eq,2))", [1, 2]),  # before a group it is passed over in silence
    ],
)
def test_conditions_join_as_in_sql(at: str, where: str, found: list[int]) -> None:
    assert select(at + where) == found


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ('@(OrderId,eq,"a,b (c)")', [2]),
        ("@(OrderId,in,'a,b (c)',A-1)", [1, 2]),
        ("@( OrderId, eq, A-1)", [1]),
        ("@(OrderId,eq,'')", [3]),
        ("@(OrderId,eq,null)", [4]),
        ("@(OrderId,neq,null)", [1, 2, 3]),
        ("@(OrderId,eq)", [3]),
        ("@(OrderId,eq,a,b)", []),
        ("@(OrderId,is,blank)", [3, 4]),
        ("@(Due,gte,exactDate,2026-01-05 10:00:00)", [2, 4]),
        ("@((Id,eq,1)~or(Id,eq,2))~or((Id,eq,3)~or(Id,eq,9))", [1, 2, 3]),
        ("@(Id,eq,1)~or((Id,eq,2))", []),  # a group of one loses its joint
    ],
)
def test_behind_an_at_sign_values_may_be_quoted(where: str, found: list[int]) -> None:
    assert select(where) == found


@pytest.mark.parametrize(
    ("where", "status", "said"),
    [
        ("(Piad,eq,1)", 422, {"msg": "Column alias 'Piad' not found."}),
        (
            "@(Piad,eq,1)",
            422,
            {"error": "ERR_INVALID_FILTER", "message": "Invalid filter field 'Piad' not found"},
        ),
        ("(Id,foo,1)", 422, {"msg": "foo is not supported."}),
        ("nonsense", 422, {"msg": "Invalid filter format."}),
        ("((Id,eq,1)~or(Id,eq,2))~or((Id,eq,3)~or(Id,eq,4))", 422, {"msg": "Invalid filter format."}),
        ("(OrderId,eq,a\nb)", 422, {"msg": "Invalid filter format."}),
        ("(OrderId,eq,x~or(y)", 422, {"msg": "Invalid filter format."}),
        ("(Due,gte,2026-01-05 09:30:00)", 422, {"msg": "'2026-01-05 09:30:00' is not supported."}),
    ],
)
async def test_a_filter_that_cannot_be_is_refused_in_one_of_two_shapes(
    ask: Ask, where: str, status: int, said: dict[str, str]
) -> None:
    assert await ask(where=where) == (status, said)
    assert await ask(path="/count", where=where) == (status, said)


@pytest.mark.parametrize(
    ("where", "status"),
    [
        ("(Amount,eq,abc)", 422),
        ("(Amount,checked)", 422),
        ("(Paid,in,1)", 422),
        ("(Paid,null)", 422),
        ("(Due,in,exactDate,2026-01-05)", 422),
        ("(Due,gte,exactDate,nonsense)", 422),
        ("(OrderId,eq)", 500),
        ("(OrderId,eq,a((b)", 500),
        ("@(Id,eq,1)~and~not(Id,eq,2)", 422),
        ("@(Id,eq,1)~xor(Id,eq,2)", 422),
        ("@(OrderId,eq,'a)", 422),
        ("@(Id,eq,1))", 422),
        ("@((((", 422),
        ("@" + "(" * 200, 422),
        ("((" * 200 + "))" * 200, 422),
    ],
)
async def test_other_filters_that_cannot_be(ask: Ask, where: str, status: int) -> None:
    assert (await ask(where=where))[0] == status


async def test_a_zone_of_the_table_is_meant_where_a_time_names_none(clock: VirtualClock) -> None:
    noco = SimulatedNocoDb(clock)
    table = noco.create_table("orders", columns=COLUMNS, zone=TOKYO)
    noco.insert(table, ROWS)
    keep = compile_where("(Due,gte,exactDate,2026-01-05 19:00:00)", noco.tables[table])
    assert [row.key for row in keep(list(noco.tables[table].rows.values()))] == [2, 4]
    keep = compile_where("(Due,gte,exactDate,2026-01-05 10:00:00+00:00)", noco.tables[table])
    assert [row.key for row in keep(list(noco.tables[table].rows.values()))] == [2, 4]


marks = st.text(st.sampled_from("()~,@'\"Idandorteq in12\\%_- \nPaid"), max_size=60)


@given(st.one_of(marks, st.text(max_size=40)))
def test_whatever_is_asked_gets_rows_or_an_error_of_the_api(where: str) -> None:
    try:
        found = select(where)
    except NocoDbApiError as error:
        assert error.status in {422, 500}  # noqa: PT017  (either is right)
    else:
        assert set(found) <= {1, 2, 3, 4}


plain = st.text(
    st.characters(exclude_characters="()'\",~\n\r", exclude_categories=["C", "Z"]), min_size=1, max_size=20
)


@given(st.lists(plain, min_size=1, max_size=20, unique=True), st.data())
def test_in_finds_exactly_the_values_that_are_named(values: list[str], data: st.DataObject) -> None:
    table = SimulatedTable("m1", "orders", key="Id", columns=COLUMNS, postgres=False)
    table.insert([{"OrderId": value} for value in values], 0.0)
    asked = data.draw(st.lists(st.sampled_from(values), min_size=1))
    keep = compile_where(f"(OrderId,in,{','.join(asked)})", table)
    assert {row.fields["OrderId"] for row in keep(list(table.rows.values()))} == set(asked)
