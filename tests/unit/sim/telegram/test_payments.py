"""Payments: an invoice, the bot's word, the money, and back."""

import pytest

from simulated import Call
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.entities import PAYMENTS_KEPT, BotPayments, Checkout, Invoice

STARS = {
    "title": "Tea",
    "description": "A cup",
    "payload": "tea",
    "currency": "XTR",
    "prices": [{"label": "Tea", "amount": 42}],
}
EUROS = STARS | {"currency": "EUR", "provider_token": "284685063:TEST"}


async def newest(ok: Call, kind: str) -> dict[str, object]:
    update: dict[str, dict[str, object]] = (await ok("getUpdates", offset=-1))[0]
    return update[kind]


async def test_an_invoice_is_paid_once_the_bot_agrees(ann: Person, ok: Call) -> None:
    assert (await ok("sendInvoice", chat_id=7, **STARS))["invoice"]["total_amount"] == 42
    checkout = ann.pays()
    query = await newest(ok, "pre_checkout_query")
    assert (query["invoice_payload"], query["total_amount"]) == ("tea", 42)
    assert checkout.state == "confirming"

    await ok("answerPreCheckoutQuery", pre_checkout_query_id=query["id"], ok=True)
    payment = (await newest(ok, "message"))["successful_payment"]
    assert isinstance(payment, dict)
    assert (payment["invoice_payload"], checkout.state) == ("tea", "paid")
    assert payment["telegram_payment_charge_id"] == checkout.charge_id


async def test_the_bot_may_refuse_a_payment(ann: Person, ok: Call, fails: Call) -> None:
    await ok("sendInvoice", chat_id=7, **STARS)
    checkout = ann.pays()
    query = {"pre_checkout_query_id": (await newest(ok, "pre_checkout_query"))["id"]}
    assert await fails("answerPreCheckoutQuery", **query, ok=False) == (
        400,
        'Bad Request: parameter "error_message" is required',
    )
    await ok("answerPreCheckoutQuery", **query, ok=False, error_message="sold out")
    assert (checkout.state, checkout.error) == ("failed", "sold out")
    assert (await fails("answerPreCheckoutQuery", **query, ok=True))[0] == 400


async def test_where_the_price_depends_on_it_shipping_is_asked_first(ann: Person, ok: Call) -> None:
    await ok("sendInvoice", chat_id=7, **EUROS, is_flexible=True, need_name=True, need_shipping_address=True)
    checkout = ann.pays()
    query = await newest(ok, "shipping_query")
    assert isinstance(query["shipping_address"], dict)
    option = {"id": "ship", "title": "By ship", "prices": [{"label": "Ship", "amount": 8}]}
    await ok("answerShippingQuery", shipping_query_id=query["id"], ok=True, shipping_options=[option])
    last = await newest(ok, "pre_checkout_query")
    assert (last["total_amount"], last["shipping_option_id"], checkout.total) == (50, "ship", 50)
    order = last["order_info"]
    assert isinstance(order, dict)
    assert (order["name"], set(order)) == ("User 7", {"name", "shipping_address"})


@pytest.mark.parametrize("options", [None, [], [{"id": "", "title": "x", "prices": []}], [{"id": "x"}]])
async def test_malformed_shipping_options_leave_the_query_open(
    ann: Person, ok: Call, fails: Call, options: object
) -> None:
    await ok("sendInvoice", chat_id=7, **EUROS, is_flexible=True)
    checkout = ann.pays()
    query = {"shipping_query_id": (await newest(ok, "shipping_query"))["id"]}
    assert (await fails("answerShippingQuery", **query, ok=True, shipping_options=options))[0] == 400
    await ok("answerShippingQuery", **query, ok=False, error_message="too far")
    assert (checkout.state, checkout.error) == ("failed", "too far")


async def test_a_link_is_paid_as_an_invoice_is(ann: Person, ok: Call) -> None:
    link = await ok("createInvoiceLink", **STARS)
    checkout = ann.pays(link)
    query = await newest(ok, "pre_checkout_query")
    await ok("answerPreCheckoutQuery", pre_checkout_query_id=query["id"], ok=True)
    assert checkout.state == "paid"


async def test_stars_are_refunded_once(ann: Person, ok: Call, fails: Call) -> None:
    await ok("sendInvoice", chat_id=7, **STARS)
    checkout = ann.pays()
    query = await newest(ok, "pre_checkout_query")
    await ok("answerPreCheckoutQuery", pre_checkout_query_id=query["id"], ok=True)
    charge = {"user_id": 7, "telegram_payment_charge_id": checkout.charge_id}
    await ok("refundStarPayment", **charge)
    assert "refunded_payment" in await newest(ok, "message")
    assert await fails("refundStarPayment", **charge) == (400, "Bad Request: CHARGE_ALREADY_REFUNDED")
    assert await fails("refundStarPayment", **charge | {"user_id": 8}) == (
        400,
        "Bad Request: CHARGE_NOT_FOUND",
    )


async def test_nobody_pays_what_was_not_asked(ann: Person, ok: Call) -> None:
    await ok("sendInvoice", chat_id=8, **STARS)
    with pytest.raises(LookupError, match="sees no such invoice"):
        ann.pays()
    await ok("sendInvoice", chat_id=7, **STARS)
    with pytest.raises(LookupError, match="sees no such invoice"):
        ann.pays("https://t.me/$elsewhere")


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"title": ""}, 'parameter "title" is required'),
        ({"title": "x" * 33}, "invoice title is too long"),
        ({"payload": "x" * 129}, "INVOICE_PAYLOAD_INVALID"),
        ({"currency": "money"}, "CURRENCY_INVALID"),
        ({"currency": "EUR"}, "PAYMENT_PROVIDER_INVALID"),
        ({"prices": 5}, "expected an Array of labeled prices"),
        ({"prices": []}, "there must be at least one price"),
        ({"prices": [5]}, "can't parse labeled price: labeledPrice must be an Object"),
        ({"prices": [{"label": ""}]}, "can't parse labeled price: labeledPrice label must be non-empty"),
        ({"prices": [{"label": "x", "amount": -1}]}, "CURRENCY_TOTAL_AMOUNT_INVALID"),
    ],
)
async def test_a_malformed_invoice_is_refused(fails: Call, params: dict[str, object], reason: str) -> None:
    assert await fails("sendInvoice", chat_id=7, **STARS | params) == (400, f"Bad Request: {reason}")


def test_a_till_keeps_the_latest() -> None:
    till, invoice = BotPayments(), Invoice("p", "XTR", 1)
    for number in range(PAYMENTS_KEPT + 5):
        till.issue(str(number), invoice)
        till.await_answer(str(number), Checkout(invoice, 7, 7, 1))
        till.collect(str(number), Checkout(invoice, 7, 7, 1))
    assert len(till.invoices) == len(till.waiting) == len(till.charges) == PAYMENTS_KEPT
    assert "0" not in till.invoices
