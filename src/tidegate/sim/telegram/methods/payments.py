"""Bot API methods about payments, and the steps of a checkout.

pays ──▶ shipping_query ──▶ answerShippingQuery ──▶ pre_checkout_query ──▶ answerPreCheckoutQuery ──▶ paid
     └─────────────── if the price is fixed ───────▶
"""

from typing import Final

from tidegate.sim.telegram.call import MethodCall, named_methods
from tidegate.sim.telegram.entities import Checkout, Invoice, Json, SimulatedBot
from tidegate.sim.telegram.parameters import QUERY_TOO_OLD, bad_request
from tidegate.sim.telegram.world import World

ADDRESS: Json = {
    "country_code": "GB",
    "state": "",
    "city": "Harwich",
    "street_line1": "1 Quay Street",
    "street_line2": "",
    "post_code": "CO12 3HH",
}
STARS = "XTR"
MAX_TITLE, MAX_DESCRIPTION, MAX_PAYLOAD = 32, 255, 128
CURRENCY_LETTERS = 3
LARGEST_TOTAL = 10**12  # in the smallest units of a currency
_NEEDS = ("name", "phone_number", "email", "shipping_address")


def send_invoice(call: MethodCall) -> Json:
    invoice = _invoice(call)
    shown = {name: call.string(name) for name in ("title", "description", "start_parameter")}
    amount = {"currency": invoice.currency, "total_amount": invoice.total}
    message = call.send({"invoice": shown | amount})
    call.bot.payments.issue((message["chat"]["id"], message["message_id"]), invoice)
    return message


def create_invoice_link(call: MethodCall) -> str:
    invoice = _invoice(call)
    link = f"https://t.me/$sim{call.world.serial()}"
    call.bot.payments.issue(link, invoice)
    return link


def answer_shipping_query(call: MethodCall) -> bool:
    error = "" if call.flag("ok") else call.required("error_message")
    options = [] if error else _shipping_options(call)
    checkout = _take(call, "shipping_query_id", "shipping")
    if error:
        checkout.fail(error)
        return True
    # The user takes the first one.
    checkout.shipping_option = options[0]["id"]
    checkout.total += _sum(options[0].get("prices"))
    send_pre_checkout_query(call.world, call.bot, checkout)
    return True


def answer_pre_checkout_query(call: MethodCall) -> bool:
    error = "" if call.flag("ok") else call.required("error_message")
    checkout = _take(call, "pre_checkout_query_id", "confirming")
    if error:
        checkout.fail(error)
    else:
        complete_checkout(call.world, call.bot, checkout, call.date)
    return True


def refund_star_payment(call: MethodCall) -> bool:
    user_id, charge_id = call.integer("user_id"), call.required("telegram_payment_charge_id")
    checkout = call.bot.payments.charges.get(charge_id)
    if checkout is None or checkout.user_id != user_id or checkout.invoice.currency != STARS:
        raise bad_request("CHARGE_NOT_FOUND")
    if checkout.state == "refunded":
        raise bad_request("CHARGE_ALREADY_REFUNDED")
    refund_checkout(call.world, call.bot, checkout, call.date)
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
    if currency != STARS and not call.string("provider_token"):
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
    """Remove and return the checkout that waits for this answer."""
    query_id = call.string(name)
    checkout = call.bot.payments.waiting.get(query_id)
    if checkout is None or checkout.state != state:
        raise QUERY_TOO_OLD
    del call.bot.payments.waiting[query_id]
    return checkout


def begin_checkout(world: World, bot: SimulatedBot, invoice: Invoice, user_id: int, chat_id: int) -> Checkout:
    """A user starts to pay: the bot gets the shipping query or, for a fixed price, the pre-checkout query."""
    checkout = Checkout(invoice, user_id, chat_id, invoice.total)
    if not invoice.flexible:
        send_pre_checkout_query(world, bot, checkout)
        return checkout
    checkout.state = "shipping"
    query_id = world.serial()
    bot.payments.await_answer(query_id, checkout)
    query = {"id": query_id, "from": world.user(user_id).json(), "invoice_payload": invoice.payload}
    bot.updates.put("shipping_query", query | {"shipping_address": ADDRESS})
    return checkout


def send_pre_checkout_query(world: World, bot: SimulatedBot, checkout: Checkout) -> None:
    checkout.state = "confirming"
    query_id = world.serial()
    bot.payments.await_answer(query_id, checkout)
    sender = {"id": query_id, "from": world.user(checkout.user_id).json()}
    bot.updates.put("pre_checkout_query", sender | _bill(world, checkout))


def complete_checkout(world: World, bot: SimulatedBot, checkout: Checkout, now: float) -> None:
    """The bot agreed: record the payment and send the bot its message."""
    charge_id = f"charge{world.serial()}"
    bot.payments.collect(charge_id, checkout)
    charge = {"telegram_payment_charge_id": charge_id, "provider_payment_charge_id": f"provider-{charge_id}"}
    _put_message(world, bot, checkout, {"successful_payment": _bill(world, checkout) | charge}, now)


def refund_checkout(world: World, bot: SimulatedBot, checkout: Checkout, now: float) -> None:
    checkout.state = "refunded"
    bill = {
        "currency": checkout.invoice.currency,
        "total_amount": checkout.total,
        "invoice_payload": checkout.invoice.payload,
        "telegram_payment_charge_id": checkout.charge_id,
    }
    _put_message(world, bot, checkout, {"refunded_payment": bill}, now)


def _bill(world: World, checkout: Checkout) -> Json:
    invoice = checkout.invoice
    bill: Json = {
        "currency": invoice.currency,
        "total_amount": checkout.total,
        "invoice_payload": invoice.payload,
    }
    if checkout.shipping_option is not None:
        bill["shipping_option_id"] = checkout.shipping_option
    user = world.user(checkout.user_id)
    known: Json = {
        "name": user.first_name,
        "phone_number": f"+44{user.id}",
        "email": f"user{user.id}@example.org",
        "shipping_address": ADDRESS,
    }
    return bill | {"order_info": {need: known[need] for need in invoice.needs}} if invoice.needs else bill


def _put_message(world: World, bot: SimulatedBot, checkout: Checkout, content: Json, now: float) -> None:
    chat = world.chat(bot, checkout.chat_id)
    if chat is not None:
        sender = {"from": world.user(checkout.user_id).json()}
        bot.updates.put("message", world.message(chat, now, sender | content))


METHODS: Final = named_methods(
    send_invoice, create_invoice_link, answer_shipping_query, answer_pre_checkout_query, refund_star_payment
)
