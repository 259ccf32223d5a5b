"""The shop's own database: customers, carts, orders, news. It knows nothing of bots."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from shop.config import BadConfigError

T = TypeVar("T")

SCHEMA = """
CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY, name TEXT, gone TEXT);
CREATE TABLE IF NOT EXISTS carts (
    customer INTEGER, product TEXT, count INTEGER, PRIMARY KEY (customer, product)
);
CREATE TABLE IF NOT EXISTS orders (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    customer INTEGER, address TEXT, recipient TEXT, placed_at TEXT DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE IF NOT EXISTS lines (number INTEGER, name TEXT, amount INTEGER, price INTEGER);
CREATE TABLE IF NOT EXISTS news (
    name TEXT PRIMARY KEY DEFAULT ('news-' || lower(hex(randomblob(8)))),
    text TEXT, finished INTEGER DEFAULT 0
);
"""


class Line(NamedTuple):
    """An item of an order, with the name and the price at that time."""

    name: str
    amount: int
    price: int  # cents, of one


class Order(NamedTuple):
    number: int
    placed_at: str
    lines: Sequence[Line]

    @property
    def total(self) -> int:
        return sum(line.amount * line.price for line in self.lines)


class Counts(NamedTuple):
    orders: int
    customers: int
    gone: int


class Book:
    """Every method is one transaction, in a thread, so that the bot is not blocked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with closing(sqlite3.connect(path)) as db:
                db.executescript(SCHEMA)
        except sqlite3.Error as error:
            raise BadConfigError(f"the database {path} cannot be used: {error}") from None

    async def welcome(self, customer: int, name: str) -> None:
        """Add a customer, or mark one as back."""
        await self._do("INSERT OR REPLACE INTO customers (id, name) VALUES (?, ?)", customer, name)

    async def mark_gone(self, customer: int, reason: str) -> None:
        await self._do("UPDATE customers SET gone = ? WHERE id = ?", reason, customer)

    async def customers(self) -> list[int]:
        """Return the customers who are not gone."""
        return [customer for (customer,) in await self._do("SELECT id FROM customers WHERE gone IS NULL")]

    async def counts(self) -> Counts:
        query = "SELECT (SELECT count(*) FROM orders), count(*), count(gone) FROM customers"
        return Counts(*(await self._do(query))[0])

    async def cart(self, customer: int) -> dict[str, int]:
        """Return the number of each product in the cart."""
        return dict(await self._do("SELECT product, count FROM carts WHERE customer = ?", customer))

    async def change_cart(self, customer: int, product: str, by: int) -> None:
        def change(db: sqlite3.Connection) -> None:
            which = (customer, product)
            db.execute("INSERT OR IGNORE INTO carts VALUES (?, ?, 0)", which)
            db.execute("UPDATE carts SET count = count + ? WHERE (customer, product) = (?, ?)", (by, *which))
            db.execute("DELETE FROM carts WHERE count < 1")

        await self._in_transaction(change)

    async def place_order(
        self, customer: int, address: str, recipient: str, lines: Sequence[Line]
    ) -> Order | None:
        """Turn the cart into an order. Returns None if the cart is empty: the button was pressed twice."""

        def place(db: sqlite3.Connection) -> Order | None:
            if not db.execute("DELETE FROM carts WHERE customer = ?", (customer,)).rowcount:
                return None
            [(number, placed_at)] = db.execute(
                "INSERT INTO orders (customer, address, recipient) VALUES (?, ?, ?)"
                " RETURNING number, placed_at",
                (customer, address, recipient),
            ).fetchall()
            db.executemany("INSERT INTO lines VALUES (?, ?, ?, ?)", [(number, *line) for line in lines])
            return Order(number, placed_at, lines)

        return await self._in_transaction(place)

    async def orders_of(self, customer: int) -> list[Order]:
        """Return the latest ten orders, the newest first."""
        query = "SELECT number, placed_at FROM orders WHERE customer = ? ORDER BY number DESC LIMIT 10"
        sold = "SELECT name, amount, price FROM lines WHERE number = ?"
        return [
            Order(number, placed_at, [Line(*row) for row in await self._do(sold, number)])
            for number, placed_at in await self._do(query, customer)
        ]

    async def add_news(self, text: str) -> str:
        """Store the news and return its unique name."""
        [(name,)] = await self._do("INSERT INTO news (text) VALUES (?) RETURNING name", text)
        return str(name)

    async def unfinished_news(self) -> list[tuple[str, str]]:
        return await self._do("SELECT name, text FROM news WHERE NOT finished ORDER BY rowid")

    async def finish_news(self, name: str) -> None:
        await self._do("UPDATE news SET finished = 1 WHERE name = ?", name)

    async def _do(self, statement: str, *values: object) -> list[Any]:
        """Run a query and return its rows."""
        return await self._in_transaction(lambda db: db.execute(statement, values).fetchall())

    async def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.to_thread(self._work, work)

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with closing(sqlite3.connect(self._path)) as db, db:
            return work(db)
