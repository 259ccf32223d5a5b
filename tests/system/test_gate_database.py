"""The database of a gate, for tables of the application."""

import pytest
from sqlalchemy import text

from tidegate import ClosedError, Incident, Settings, Tidegate


async def test_an_application_keeps_its_own_tables_there_and_it_is_closed_with_the_gate() -> None:
    async with Tidegate("memory://") as gate:
        database = gate.database
        assert gate.database is database
        await database.open()
        async with database.write() as transaction:
            await transaction.execute(text("CREATE TABLE orders (number INTEGER)"))
            await transaction.execute(text("INSERT INTO orders VALUES (7)"))
        async with database.read() as transaction:
            assert await transaction.scalar(text("SELECT number FROM orders")) == 7
    with pytest.raises(ClosedError):
        async with database.read():
            pass


async def test_slow_statements_and_transactions_are_told_without_values() -> None:
    at_once = 1e-9
    settings = Settings(tidegate_slow_sql=at_once, tidegate_slow_transaction=at_once)
    async with Tidegate("memory://", settings=settings) as gate:
        await gate.database.open()
        told: list[Incident] = []
        gate.core.incidents.subscribe(told.append)
        async with gate.database.read() as transaction:
            await transaction.scalar(text("SELECT :name || 'secret' || 4711"), {"name": "Ann"})

    assert [one.text.split("s: ")[-1] for one in told[:1]] == ["SELECT :name || … || …"]
    assert "system/test_gate_database.py:" in told[1].text
    assert [one.kind for one in told] == ["slow_sql", "slow_transaction"]


async def test_quick_ones_are_not_told() -> None:
    settings = Settings(tidegate_slow_sql=60, tidegate_slow_transaction=60)
    async with Tidegate("memory://", settings=settings) as gate:
        await gate.database.open()
        async with gate.database.read() as transaction:
            await transaction.scalar(text("SELECT 1"))
        assert gate.core.incidents.counts == {}
