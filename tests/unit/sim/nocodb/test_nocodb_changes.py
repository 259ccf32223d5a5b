"""`UpdatedAt` and when changes are seen: what a delta has to live with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sim.nocodb import SimulatedNocoDb
from tidegate.sim.nocodb.table import as_text, instant
from tidegate.sim.virtual_time import EPOCH, VirtualClock
from unit.sim.nocodb.noco_tables import Ask


def updated(noco: SimulatedNocoDb, table: str) -> list[object]:
    return [row["UpdatedAt"] for row in noco.rows(table)]


async def test_updated_at_has_whole_seconds_of_the_servers_clock(
    noco: SimulatedNocoDb, table: str, clock: VirtualClock
) -> None:
    noco.insert(table, [{}, {}])
    await clock.sleep(1.9)
    noco.pay(table, 1)
    noco.skew = 20
    noco.pay(table, 2)
    assert updated(noco, table) == ["2026-01-05 09:00:01+00:00", "2026-01-05 09:00:21+00:00"]


async def test_any_update_sets_it_even_one_that_changes_nothing(
    ask: Ask, noco: SimulatedNocoDb, table: str
) -> None:
    noco.insert(table, [{}])
    await ask("PATCH", body={"Id": 1, "Nonsense": 5})
    assert updated(noco, table) == ["2026-01-05 09:00:00+00:00"]


async def test_direct_sql_leaves_it_alone(noco: SimulatedNocoDb, table: str) -> None:
    noco.insert(table, [{}])
    noco.direct(table, 1, Paid=True)
    assert [(row["Paid"], row["UpdatedAt"]) for row in noco.rows(table)] == [(1, None)]


async def test_a_late_commit_is_seen_late_with_the_time_of_its_update(
    ask: Ask, noco: SimulatedNocoDb, table: str, clock: VirtualClock
) -> None:
    noco.insert(table, [{}])
    noco.pay(table, 1, commit_after=5)
    await clock.sleep(4.9)
    assert (await ask(where="(Paid,checked)"))[1]["list"] == []
    assert updated(noco, table) == [None]
    await clock.sleep(0.2)
    row = (await ask(where="(Paid,checked)"))[1]["list"][0]
    assert row["UpdatedAt"] == "2026-01-05 09:00:00+00:00"


async def test_a_row_that_is_committed_late_appears_before_later_ones(
    ask: Ask, noco: SimulatedNocoDb, table: str, clock: VirtualClock
) -> None:
    assert noco.insert(table, [{"Paid": True}], commit_after=5) == [1]
    assert noco.insert(table, [{}]) == [2]
    noco.update(table, [{"Id": 1, "Amount": 7}], commit_after=6)
    assert [row["Id"] for row in (await ask())[1]["list"]] == [2]
    await clock.sleep(10)
    rows = (await ask())[1]["list"]
    assert [(row["Id"], row["Amount"], row["CreatedAt"]) for row in rows] == [
        (1, 7, "2026-01-05 09:00:00+00:00"),
        (2, None, "2026-01-05 09:00:00+00:00"),
    ]


async def test_a_late_change_of_a_row_that_was_deleted_is_nothing(
    noco: SimulatedNocoDb, table: str, clock: VirtualClock
) -> None:
    noco.insert(table, [{}])
    noco.pay(table, 1, commit_after=5)
    noco.delete(table, [1])
    await clock.sleep(10)
    assert noco.rows(table) == []


async def test_a_delta_asks_for_what_was_updated_or_created(
    ask: Ask, noco: SimulatedNocoDb, table: str, clock: VirtualClock
) -> None:
    noco.insert(table, [{}] * 3)
    await clock.sleep(60)
    noco.pay(table, 2)
    noco.insert(table, [{"Paid": True}])  # created as paid: its UpdatedAt is null
    noco.direct(table, 3, Paid=True)  # no delta can see that
    since = "2026-01-05 09:01:00+00:00"
    changed = f"((UpdatedAt,gte,exactDate,{since})~or(CreatedAt,gte,exactDate,{since}))"
    page = (await ask(where=f"{changed}~and(Paid,checked)", sort="UpdatedAt,Id"))[1]
    assert [row["Id"] for row in page["list"]] == [4, 2]


@given(st.integers(0, 4_000_000_000))
def test_a_time_that_was_written_is_read_as_the_same(at: int) -> None:
    assert instant(as_text(at)) == at


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-05 09:00:00", EPOCH),
        ("2026-01-05T09:00:00.9Z", EPOCH),
        ("2026-01-05 09:00", EPOCH),
        ("2026-01-05 12:00:00+0300", EPOCH),
        ("2026-01-05 04:00:00-05:00", EPOCH),
        ("2026-01-05", EPOCH - 9 * 3600),
        ("2026-13-05", None),
        ("2026-01-05 25:00:00", None),
        ("2026-01-05 09:00:00+99:00", None),
        ("0001-01-01 00:00:00+14:00", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_times_in_every_form(text: str, at: float | None) -> None:
    assert instant(text) == at
