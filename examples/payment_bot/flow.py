"""The conversation, as data. `tidegate flow diagram payment_bot.flow:PAYMENT` draws it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidegate import Flow, FlowBuilder, FlowEvent, Texts, WorkDone, read_texts

OURS: Final = Path(__file__).with_name("texts.toml")
TEXTS: Final = read_texts(OURS)
AWAITING: Final = "awaiting_payment"
DAY: Final = 86_400.0
NUDGE: Final = 900.0
PRICE: Final = "10 €"


def payment_flow(
    texts: Texts | None = None, *, price: str = PRICE, nudge: float = NUDGE, lifetime: float = DAY
) -> Flow:
    """`nudge`: seconds until the user of an unpaid order is reminded once; `lifetime`: until it lapses.

    Raises BadInputError with a list of all mistakes, such as a text that a language lacks.
    """
    flow = FlowBuilder(
        "payment",
        lifetime=lifetime,
        texts=_priced(texts or TEXTS, price),
        otherwise="otherwise",
        expired="expired",
        stale="stale",
    )
    flow.command("/start", to="welcome")
    flow.state("welcome", say="welcome").button("order", to="ordering")
    # The bot gives the function under the name of the work. The order is created once for each visit of this
    # state, also after a crash.
    ordering = flow.state("ordering", otherwise="moment").on("/start", say="moment")
    ordering.run("create_order", done=AWAITING, failed="sorry", save=("order_id",))
    _await_payment(flow, nudge)
    _cancel(flow)
    flow.state("sorry", say="sorry").button("again", to="ordering")
    flow.final("confirmed", say="confirmed")
    flow.final("cancelled", say="cancelled")
    flow.final("vanished", say="vanished")
    return flow.build()


def _await_payment(flow: FlowBuilder, nudge: float) -> None:
    """Wait for payment, cancellation, or the end of the lifetime. `/start` does not abandon an order."""
    state = flow.state(AWAITING, say="pay", otherwise="waiting").button("cancel", to="cancelling")
    state.on("/start", say="waiting").on("/cancel", to="cancelling")
    state.poll("payment", key="order_id", met="confirmed", gone="vanished").timeout(nudge, say="nudge")


def _cancel(flow: FlowBuilder) -> None:
    """Cancel the order, unless it was paid at the same moment: the table of orders decides."""

    @flow.guard
    def was_paid(data: Mapping[str, Any], event: FlowEvent) -> bool:  # noqa: ARG001  (a guard is given both)
        return isinstance(event, WorkDone) and bool((event.result or {}).get("paid"))

    @flow.guard
    def is_ordered(data: Mapping[str, Any], event: FlowEvent) -> bool:  # noqa: ARG001
        return bool(data.get("order_id"))

    state = flow.state("cancelling", otherwise="moment").on("/start", say="moment")
    state.on("done:cancel_order", to="confirmed", guard="was_paid")
    state.on("failed:cancel_order", to=AWAITING, say="not_cancelled", guard="is_ordered")
    state.run("cancel_order", done="cancelled", failed=AWAITING)


def _priced(texts: Texts, price: str) -> Texts:
    """Fill the price into the texts: it is the same in every session."""
    told = {
        language: {key: text.replace("{price}", price) for key, text in table.items()}
        for language, table in texts.languages.items()
    }
    return Texts(told, texts.default)


PAYMENT: Final = payment_flow()
