"""The ends of jobs, in the bot's process: the user hears, and further jobs begin.

After a crash a report may be made again. So each message and each further job has a key, and is put once.
"""

from label_bot.jobs import make_label, send_email, send_sms, take_payment
from label_bot.orders import Order
from label_bot.texts import LabelTexts
from tidegate import File, JobRecord, Tidegate


class Reports:
    def __init__(self, gate: Tidegate, texts: LabelTexts) -> None:
        self._gate = gate
        self._say = texts

    def register(self) -> None:
        make_label.on_done(self.label_done)
        make_label.on_failed(self.label_failed)
        take_payment.on_done(self.payment_taken)

    async def label_done(self, job: JobRecord) -> dict[str, object]:
        """Return the message to the chat of the job."""
        order = Order.unpacked(job.args[0])
        return {
            "method": "sendDocument",
            "document": File(content=job.result, name=f"label-{order.id}.pdf"),
            "caption": self._say("label", order.language, order=order.id),
        }

    async def label_failed(self, job: JobRecord) -> str:
        order = Order.unpacked(job.args[0])
        return self._say("label_failed", order.language, order=order.id)

    async def payment_taken(self, job: JobRecord) -> None:
        if job.result is None:
            return
        order = Order.unpacked(job.result)
        text = self._say("paid", order.language, order=order.id)
        await self._gate.send(chat_id=order.chat_id, text=text, dedup_key=f"paid:{order.id}")
        if order.parcel.email is not None:
            subject = self._say("mail_subject", order.language, order=order.id)
            mail = send_email.options(key=f"paid:{order.id}")
            await mail.submit(order.id, order.parcel.email, subject, text)
        if order.parcel.phone is not None:
            await send_sms.options(key=f"paid:{order.id}").submit(order.id, order.parcel.phone, text)
