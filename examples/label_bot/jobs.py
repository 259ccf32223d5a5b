"""The heavy work: labels, payments, e-mails and SMS. Each function runs in a process of Tidegate's pool.

Such a process imports this module. So the gate is made here, and the settings are read here; nothing is
opened or started. In a job it is right to block: nobody else waits for this process.
"""

import logging
import smtplib
import urllib.request
from email.message import EmailMessage
from typing import Any, Final

import msgspec

from label_bot.config import Services
from label_bot.label import draw_label
from label_bot.orders import Order, Orders
from tidegate import Clock, Tidegate

TIMEOUT: Final = 10.0  # seconds, of a call to a service

log = logging.getLogger("label_bot")
clock = Clock()
services = Services.read()

# This is Tidegate, with its import: the store, the database and the jobs. bot.py attaches it to the bot.
gate = Tidegate()


@gate.job(retries=services.retries, pause=services.pause, timeout=120)
def make_label(order: dict[str, Any]) -> bytes:
    """Return the PDF of an order. The chat of the job gets it: see `Reports` in reports.py."""
    parcel = Order.unpacked(order)
    tracking = _tracking_number(parcel)
    until = clock.monotonic() + services.seconds
    label = draw_label(parcel, tracking, services.font)
    while clock.monotonic() < until:  # a label with maps and customs forms would take this long
        label = draw_label(parcel, tracking, services.font)
    return label


@gate.job(retries=services.retries, pause=services.pause, timeout=30, failed_text=None)
async def take_payment(event: dict[str, Any]) -> dict[str, Any] | None:
    """Mark the order of a signed event as paid, once; return it. What follows is in reports.py."""
    body = event["json"] if isinstance(event["json"], dict) else {}
    orders = Orders(gate)
    await gate.database.open()
    try:
        order = await orders.mark_paid(str(body.get("order")), event["id"])
    finally:
        await gate.database.close()
    if order is None:  # trying again cannot help
        log.warning("payment %s is for no order that is open: look at it by hand", event["id"])
        return None
    return order.packed()


@gate.job(retries=services.retries, pause=services.pause, timeout=60, failed_text=None)
def send_email(order_id: str, to: str, subject: str, text: str) -> None:
    """Send an e-mail. One that is tried again has the same Message-ID: mail servers know it as a double."""
    server = services.mail
    if server is None:
        return
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = services.mail_from, to, subject
    mail["Message-ID"] = f"<order-{order_id}@{services.mail_from.rpartition('@')[2]}>"
    mail.set_content(text)
    connect = smtplib.SMTP_SSL if server.uses_tls else smtplib.SMTP
    with connect(server.host, server.port, timeout=TIMEOUT) as connection:
        connection.ehlo_or_helo_if_needed()
        if not server.uses_tls and connection.has_extn("starttls"):
            connection.starttls()
        if server.user is not None:
            connection.login(server.user, server.password or "")
        connection.send_message(mail)


@gate.job(retries=services.retries, pause=services.pause, timeout=60, failed_text=None)
def send_sms(order_id: str, to: str, text: str) -> None:
    """Send an SMS. One that is tried again has the same key, by which the provider knows it."""
    if services.sms_url is not None:
        _post(services.sms_url, {"to": to, "text": text}, key=f"paid-{order_id}")


def _tracking_number(order: Order) -> str:
    """Ask the carrier, if there is one."""
    if services.carrier_url is None:
        return f"TG{order.id}"
    answer = _post(services.carrier_url, order.packed(), key=order.id)
    return str(msgspec.json.decode(answer, type=dict[str, str])["tracking"])


def _post(url: str, body: dict[str, Any], key: str) -> bytes:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    request = urllib.request.Request(url, msgspec.json.encode(body), headers)  # noqa: S310  (http: config.py)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310  (likewise)
        content: bytes = answer.read()
    return content
