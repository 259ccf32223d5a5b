"""What is to be paid, who pays it, and what was paid. Bounded: the oldest make room."""

from typing import Any, Literal

import msgspec

MOST_KEPT = 1_000  # of each kind, for each bot
Json = dict[str, Any]
# A message, by its chat and id, or a link.
InvoiceKey = tuple[int, int] | str


class Invoice(msgspec.Struct, frozen=True):
    payload: str
    currency: str
    total: int  # in the smallest units of the currency
    flexible: bool = False  # the price depends on where it goes
    needs: tuple[str, ...] = ()  # of the buyer: name, phone_number, email, shipping_address


class Checkout:
    """One person paying one invoice. `state` and `error` are what the person sees."""

    def __init__(self, invoice: Invoice, user_id: int, chat_id: int) -> None:
        self.invoice = invoice
        self.user_id = user_id
        self.chat_id = chat_id
        self.total = invoice.total
        self.shipping_option: str | None = None
        self.state: Literal["shipping", "confirming", "paid", "failed", "refunded"] = "confirming"
        self.error = ""
        self.charge_id = ""

    def fail(self, error: str) -> None:
        self.state = "failed"
        self.error = error


class Till:
    """The invoices of one bot, the checkouts that wait for its word, and what it was paid."""

    def __init__(self) -> None:
        self.invoices: dict[InvoiceKey, Invoice] = {}
        self.waiting: dict[str, Checkout] = {}  # by the query that the bot has to answer
        self.charges: dict[str, Checkout] = {}

    def issue(self, key: InvoiceKey, invoice: Invoice) -> None:
        self.invoices[key] = invoice
        _shorten(self.invoices)

    def await_answer(self, query_id: str, checkout: Checkout) -> None:
        self.waiting[query_id] = checkout
        _shorten(self.waiting)

    def collect(self, charge_id: str, checkout: Checkout) -> None:
        checkout.state, checkout.charge_id = "paid", charge_id
        self.charges[charge_id] = checkout
        _shorten(self.charges)


def _shorten(kept: dict[Any, Any]) -> None:
    if len(kept) > MOST_KEPT:
        del kept[next(iter(kept))]
