"""The numbers of rows: rising, and never given twice.

A number stands for a message in the memory of the sender. If that of an erased message came back, the
sender would take another message for it.
"""

from collections.abc import Collection

from tidegate.outbox.sqlite.file import Transaction


def next_number(tx: Transaction) -> int:
    number: int = tx.execute(
        "SELECT max(ifnull((SELECT max(seq) FROM messages), 0),"
        " ifnull((SELECT value FROM facts WHERE name = 'last_seq'), 0)) + 1"
    ).fetchone()[0]
    return number


def retire(tx: Transaction, numbers: Collection[int]) -> None:
    """Their rows are removed."""
    if numbers:
        tx.execute(
            "INSERT INTO facts VALUES ('last_seq', ?)"
            " ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
            (max(numbers),),
        )
