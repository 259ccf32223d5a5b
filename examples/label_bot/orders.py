"""Orders: how a user writes one, and the table in which they are kept, in the database of Tidegate."""

import re
import secrets
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, Column, Float, Index, MetaData, Table, Text, select, update
from sqlalchemy.dialects import postgresql, sqlite

from tidegate import StoreError, Tidegate

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # no letters that look alike
ID_LENGTH: Final = 8  # 40 bits
HEAVIEST: Final = 31.5  # kg
LONGEST_PART: Final = 60  # characters, of a line of the label
ADDRESS_PARTS: Final = 4  # weight, name, street, town
SHOWN_ORDERS: Final = 5
ATTEMPTS: Final = 10
_WEIGHT: Final = re.compile(r"(\d{1,3}(?:[.,]\d{1,3})?)\s*kg", re.IGNORECASE)
_EMAIL: Final = re.compile(r"[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+")
_PHONE: Final = re.compile(r"\+\d{6,15}")

tables: Final = MetaData()
orders: Final = Table(
    "label_orders",
    tables,
    Column("order_id", Text, primary_key=True),
    Column("cause", Text, nullable=False, unique=True),  # the message: handled again, it finds its order
    Column("chat_id", BigInteger, nullable=False),
    Column("language", Text),
    Column("weight", Float, nullable=False),  # kg
    Column("service", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("street", Text, nullable=False),
    Column("town", Text, nullable=False),
    Column("email", Text),
    Column("phone", Text),
    Column("created_at", Float, nullable=False),
    Column("paid_by", Text),  # the id of the event
    Index("ix_label_orders_chat", "chat_id", "created_at"),
)


class Parcel(NamedTuple):
    """A parcel, written as `2.5 kg; Jane Doe; Main St 1; 12345 Berlin; express; jane@example.org`."""

    weight: float
    name: str
    street: str
    town: str
    service: str = "standard"
    email: str | None = None
    phone: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Parcel | None":
        """Return None for a text that is none. After the town, parts come in any order or not at all."""
        first, *parts = (part.strip() for part in text.split(";"))
        weight = _WEIGHT.fullmatch(first)
        address, more = parts[: ADDRESS_PARTS - 1], parts[ADDRESS_PARTS - 1 :]
        if weight is None or len(address) < ADDRESS_PARTS - 1:
            return None
        if not all(part.isprintable() and 0 < len(part) <= LONGEST_PART for part in parts):
            return None
        options = [_option(part) for part in more]
        kg = float(weight[1].replace(",", "."))
        if not 0 < kg <= HEAVIEST or None in options or len(set(options)) < len(options):
            return None
        return cls(kg, *address, **{name: value for name, value in zip(options, more, strict=True) if name})


def _option(part: str) -> str | None:
    if part in {"standard", "express"}:
        return "service"
    if _EMAIL.fullmatch(part):
        return "email"
    return "phone" if _PHONE.fullmatch(part) else None


class Order(NamedTuple):
    id: str
    chat_id: int
    language: str | None
    parcel: Parcel
    paid_by: str | None = None

    def packed(self) -> dict[str, Any]:
        """Return it as plain values, which a job takes."""
        return {**self._asdict(), "parcel": self.parcel._asdict()}

    @classmethod
    def unpacked(cls, values: dict[str, Any]) -> "Order":
        return cls(**{**values, "parcel": Parcel(**values["parcel"])})


class Orders:
    """The table. Any number of processes may use it."""

    def __init__(self, gate: Tidegate) -> None:
        self._gate = gate

    async def open(self) -> None:
        """Open the database of the gate, and create the table if it is missing."""
        await self._gate.database.open()
        async with self._gate.database.write() as transaction:
            await transaction.run(tables.create_all)

    async def create(self, cause: str, chat_id: int, language: str | None, parcel: Parcel) -> Order:
        """Return the order of a cause: a new one with an id that no other has, or the one it has got."""
        row = {
            "cause": cause,
            "chat_id": chat_id,
            "language": language,
            "created_at": self._gate.clock.now(),
            **parcel._asdict(),
        }
        async with self._gate.database.write() as transaction:
            dialect = postgresql if transaction.dialect == "postgresql" else sqlite
            for _ in range(ATTEMPTS):  # a second one only if the id is taken, or the cause just now
                if found := await transaction.rows(select(orders).where(orders.c.cause == cause)):
                    return _order(found[0])
                new = dialect.insert(orders).values(order_id=new_order_id(), **row)
                made = await transaction.rows(new.on_conflict_do_nothing().returning(orders))
                if made:
                    return _order(made[0])
        raise StoreError(f"no free number was found for an order in {ATTEMPTS} attempts")

    async def of_chat(self, chat_id: int) -> list[Order]:
        """Return the latest orders of a chat."""
        query = select(orders).where(orders.c.chat_id == chat_id).order_by(orders.c.created_at.desc())
        async with self._gate.database.read(latest=True) as transaction:
            return [_order(row) for row in await transaction.rows(query.limit(SHOWN_ORDERS))]

    async def mark_paid(self, order_id: str, event: str) -> Order | None:
        """Mark an order as paid by an event, also again; None if there is none, or another event paid it."""
        its_own = orders.c.paid_by.is_(None) | (orders.c.paid_by == event)
        query = update(orders).where(orders.c.order_id == order_id, its_own).values(paid_by=event)
        async with self._gate.database.write() as transaction:
            found = await transaction.rows(query.returning(orders))
        return _order(found[0]) if found else None


def new_order_id() -> str:
    """Return an id that is easy to read aloud. It cannot be guessed, and is most likely free."""
    return "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH))


def _order(row: Any) -> Order:  # noqa: ANN401  (a row of SQLAlchemy)
    parcel = Parcel(**{name: row[name] for name in Parcel._fields})
    return Order(row["order_id"], row["chat_id"], row["language"], parcel, row["paid_by"])
