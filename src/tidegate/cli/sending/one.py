"""`tidegate send`: one message into the store, and, if asked, the wait for its delivery."""

from collections.abc import Mapping
from typing import Any

from tidegate.app import Tidegate
from tidegate.cli import loop, terminal
from tidegate.cli.gates import choose_bot, gate_at, quietly, reached
from tidegate.cli.places import option
from tidegate.cli.record_view import as_json as known_of
from tidegate.cli.sending.fields import Wanted, fields_of
from tidegate.cli.stores import someone_delivers
from tidegate.clock import Clock
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.tickets import LiveTicket, Receipt


def send(
    store: str | None,
    wanted: Wanted,
    shared: dict[str, Any],
    *,
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    if shared.get("dedup_key") == "":
        raise BadInputError("--dedup-key: an empty key is none: give one, or leave the option out")
    fields = fields_of(wanted, Clock().now()) | shared
    gate = gate_at(store)
    with quietly():
        loop.run(_send(gate, store, fields, wait=wait, timeout=timeout, as_json=as_json))


async def _send(
    gate: Tidegate,
    store: str | None,
    fields: dict[str, Any],
    *,
    wait: bool,
    timeout: float | None,  # noqa: ASYNC109  (the clock's time)
    as_json: bool,
) -> None:
    clock = Clock()
    async with reached(gate, store):
        bot = choose_bot(gate, fields.pop("bot"))
        [ticket] = await gate.send_many([fields], bot=bot)  # a parameter may have any name
        started = clock.monotonic()
        if not as_json:
            terminal.put_line(_accepted(ticket))
        await _hint(gate, store, wait=wait)
        try:
            receipt = await _delivered(ticket, fields, timeout) if wait else None
        finally:
            if as_json:
                terminal.put_json(await _known(gate, ticket))
        if receipt is not None and not as_json:
            terminal.put_line(_arrived(receipt, clock.monotonic() - started))


async def _hint(gate: Tidegate, store: str | None, *, wait: bool) -> None:
    """Whoever waits for a worker that does not run would wait for ever."""
    if not await someone_delivers(gate):
        then = "; this waits until it has delivered" if wait else ""
        terminal.note(f"tidegate: no worker runs: start one with tidegate worker{option(store)}{then}")


async def _delivered(
    ticket: LiveTicket,
    fields: Mapping[str, Any],
    timeout: float | None,  # noqa: ASYNC109  (likewise)
) -> Receipt:
    try:
        return await ticket.delivered(timeout)
    except TimeoutError:
        raise NotDeliveredError(
            f"{ticket.id} was not delivered within {timeout:g} s and still waits: ask tidegate queue why",
            method=fields["method"],
            chat_id=fields["chat_id"],
        ) from None


async def _known(gate: Tidegate, ticket: LiveTicket) -> dict[str, Any]:
    """As `tidegate queue show` has it, and whether this put was the first with its dedup key."""
    record = await gate.outbox.find(ticket.id)
    return {"id": ticket.id, "fresh": ticket.fresh} | ({} if record is None else known_of(record))


def _accepted(ticket: LiveTicket) -> str:
    return (
        f"Accepted as {ticket.id}"
        if ticket.fresh
        else f"Accepted before, with this dedup key, as {ticket.id}"
    )


def _arrived(receipt: Receipt, seconds: float) -> str:
    what = "" if receipt.message_id is None else f" as message {receipt.message_id}"
    return f"Delivered{what} after {seconds:.1f} s"
