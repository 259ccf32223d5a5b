"""Ids of rows that are known before the rows are written."""

from sqlalchemy import Table, text

from tidegate.database.database import SqlTransaction


async def allocate_ids(transaction: SqlTransaction, table: Table, count: int) -> list[int]:
    """Return new ids for rows of a table, in rising order. SQLite's write lock is held meanwhile."""
    if transaction.dialect == "postgresql":
        sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
        query = text(f"SELECT nextval({sequence}) FROM generate_series(1, :count)")  # noqa: S608  (our table)
        return list((await transaction.execute(query, {"count": count})).scalars())
    query = text(f"SELECT max(seq) FROM sqlite_sequence WHERE name = '{table.name}'")  # noqa: S608  (likewise)
    last = await transaction.scalar(query) or 0
    return list(range(last + 1, last + 1 + count))
