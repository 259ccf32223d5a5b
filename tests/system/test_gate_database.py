"""The database of a gate, for tables of the application."""

import pytest
from sqlalchemy import text

from tidegate import ClosedError, Tidegate


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
