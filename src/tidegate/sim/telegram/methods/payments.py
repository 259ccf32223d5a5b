"""Invoices, and the bot's word in a payment. What a person does in it is in `paying.py`."""

from typing import Final

from tidegate.sim.telegram import paying
from tidegate.sim.telegram.call import MethodCall, Methods, bad_request
from tidegate.sim.telegram.entities import Checkout, Invoice, Json

STARS = "XTR"
MAX_TITLE, MAX_DESCRIPTION, MAX_PAYLOAD = 32, 255, 128
CURRENCY_LETTERS = 3
LARGEST_TOTAL = 10**12  # in the smallest units of a currency
_NEEDS = ("name", "phone_number", "email", "shipping_address")
TOO_OLD = "query is too old and response timeout expired or query ID is invalid"


def send_invoice(call: MethodCall) -> Json:
    invoice = _invoice(call)
    shown = {name: call.word(name) for name in ("title", "description", "start_parameter")}
    amount = {"currency": invoice.currency, "total_amount": invoice.total}
    message = call.send({"invoice": shown | amount})
    call.bot.till.issue((message["chat"]["id"], message["message_id"]), invoice)
    return message


def create_invoice_link(call: MethodCall) -> str:
    invoice = _invoice(call)
    link = f"https://t.me/$sim{call.world.serial()}"
    call.bot.till.issue(link, invoice)
    return link


def answer_shipping_query(call: MethodCall) -> bool:
    error = "" if call.flag("ok") else call.required("error_message")
    options = [] if error else _shipping_options(call)
    checkout = _take(call, "shipping_query_id", "shipping")
    if error:
        checkout.fail(error)
        return True
    # The person takes the first one.
    checkout.shipping_option = options[0]["id"]
    checkout.total += _sum(options[0].get("prices"))
    paying.send_pre_checkout_query(call.world, call.bot, checkout)
    return True


def answer_pre_checkout_query(call: MethodCall) -> bool:
    error = "" if call.flag("ok") else call.required("error_message")
    checkout = _take(call, "pre_checkout_query_id", "confirming")
    if error:
        checkout.fail(error)
    else:
        paying.complete_checkout(call.world, call.bot, checkout, call.date)
    return True


def refund_star_payment(call: MethodCall) -> bool:
    user_id, charge_id = call.integer("user_id"), call.required("telegram_payment_charge_id")
    checkout = call.bot.till.charges.get(charge_id)
    if checkout is None or checkout.user_id != user_id or checkout.invoice.currency != STARS:
        raise bad_request("CHARGE_NOT_FOUND")
    if checkout.state == "refunded":
        raise bad_request("CHARGE_ALREADY_REFUNDED")
    paying.refund_checkout(call.world, call.bot, checkout, call.date)
    return True


def _invoice(call: MethodCall) -> Invoice:
    for name, most in (("title", MAX_TITLE), ("description", MAX_DESCRIPTION)):
        call.required(name)
        call.text(name, most, what=f"invoice {name}")
    payload, currency = call.required("payload"), call.required("currency").upper()
    if len(payload.encode()) > MAX_PAYLOAD:
        raise bad_request("INVOICE_PAYLOAD_INVALID")
    if len(currency) != CURRENCY_LETTERS or not currency.isalpha():
        raise bad_request("CURRENCY_INVALID")
    if currency != STARS and not call.word("provider_token"):
        raise bad_request("PAYMENT_PROVIDER_INVALID")
    return Invoice(
        payload=payload,
        currency=currency,
        total=_sum(call.nested("prices")),
        flexible=call.flag("is_flexible"),
        needs=tuple(need for need in _NEEDS if call.flag(f"need_{need}")),
    )


def _sum(prices: object) -> int:
    if not isinstance(prices, list):
        raise bad_request("expected an Array of labeled prices")
    if not prices:
        raise bad_request("there must be at least one price")
    total = 0
    for price in prices:
        if not isinstance(price, dict):
            raise bad_request("can't parse labeled price: labeledPrice must be an Object")
        label, amount = price.get("label"), price.get("amount")
        if not isinstance(label, str) or not label:
            raise bad_request("can't parse labeled price: labeledPrice label must be non-empty")
        if not isinstance(amount, int):
            raise bad_request('can\'t parse labeled price: field "amount" must be a valid Number')
        total += amount
    if not 0 < total <= LARGEST_TOTAL:
        raise bad_request("CURRENCY_TOTAL_AMOUNT_INVALID")
    return total


def _shipping_options(call: MethodCall) -> list[Json]:
    options = call.objects("shipping_options", expected="shipping options")
    if not options:
        raise bad_request("there must be at least one shipping option")
    for option in options:
        if not isinstance(option.get("id"), str) or not option["id"]:
            raise bad_request("can't parse shipping option: shippingOption identifier must be non-empty")
        if not isinstance(option.get("title"), str) or not option["title"]:
            raise bad_request("can't parse shipping option: shippingOption title must be non-empty")
        _sum(option.get("prices"))
    return options


def _take(call: MethodCall, name: str, state: str) -> Checkout:
    """The checkout that waits for this answer, once."""
    query_id = call.word(name)
    checkout = call.bot.till.waiting.get(query_id)
    if checkout is None or checkout.state != state:
        raise bad_request(TOO_OLD)
    del call.bot.till.waiting[query_id]
    return checkout


METHODS: Final[Methods] = {
    "sendInvoice": send_invoice,
    "createInvoiceLink": create_invoice_link,
    "answerShippingQuery": answer_shipping_query,
    "answerPreCheckoutQuery": answer_pre_checkout_query,
    "refundStarPayment": refund_star_payment,
}
