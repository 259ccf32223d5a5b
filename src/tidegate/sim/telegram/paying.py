"""How a payment goes: shipping where the price depends on it, the bot's last word, the payment.

pays ──▶ shipping_query ──▶ answerShippingQuery ──▶ pre_checkout_query ──▶ answerPreCheckoutQuery ──▶ paid
     └────────────────── a fixed price ───────────▶
"""

from tidegate.sim.telegram.entities import Checkout, Invoice
from tidegate.sim.telegram.world import Json, SimulatedBot, World

ADDRESS: Json = {
    "country_code": "GB",
    "state": "",
    "city": "Harwich",
    "street_line1": "1 Quay Street",
    "street_line2": "",
    "post_code": "CO12 3HH",
}


def begin_checkout(world: World, bot: SimulatedBot, invoice: Invoice, user_id: int, chat_id: int) -> Checkout:
    """A person pays; the bot is asked what is to be asked first."""
    checkout = Checkout(invoice, user_id, chat_id)
    if not invoice.flexible:
        send_pre_checkout_query(world, bot, checkout)
        return checkout
    checkout.state = "shipping"
    query_id = world.serial()
    bot.till.await_answer(query_id, checkout)
    query = {"id": query_id, "from": world.user(user_id).json(), "invoice_payload": invoice.payload}
    bot.updates.put("shipping_query", query | {"shipping_address": ADDRESS})
    return checkout


def send_pre_checkout_query(world: World, bot: SimulatedBot, checkout: Checkout) -> None:
    checkout.state = "confirming"
    query_id = world.serial()
    bot.till.await_answer(query_id, checkout)
    sender = {"id": query_id, "from": world.user(checkout.user_id).json()}
    bot.updates.put("pre_checkout_query", sender | _bill(world, checkout))


def complete_checkout(world: World, bot: SimulatedBot, checkout: Checkout, now: float) -> None:
    """The bot agreed: the money moves, and a message says so."""
    charge_id = f"charge{world.serial()}"
    bot.till.collect(charge_id, checkout)
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
