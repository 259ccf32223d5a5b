"""Random messages through every way in, random bytes flipped in the store: no loop ends, the rest goes on.

In virtual time against the simulator. Some messages are claimed when their sender dies, and their rows are
damaged before the next one recovers them.
"""

import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.poison import DAMAGED_STORES, Damaged, DamagedStore, folder_for_a_run
from simulated import TOKEN
from tidegate import File, Tidegate
from tidegate.broadcast.campaign import Campaign
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.model import State, TicketId
from tidegate.outbox.tickets import LiveTicket
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock, run

Fields = dict[Any, Any]
Entry = Callable[[Tidegate, Fields], Awaitable[list[TicketId]]]

TEXTS = st.text(st.characters(exclude_categories=["C"]), max_size=30)
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | TEXTS
KEYS = st.text(st.characters(exclude_categories=["C"]), max_size=15)
POISON = (
    st.sampled_from([float("nan"), float("-inf"), object(), {1}, 2**64, "\ud800", File(path="\udc80")])
    | st.binary(max_size=4)
    | st.dictionaries(st.integers() | st.floats() | st.binary(max_size=4), PLAIN, min_size=1, max_size=2)
)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves, lambda one: st.lists(one, max_size=3) | st.dictionaries(KEYS, one, max_size=3), max_leaves=5
    )


GOOD = st.fixed_dictionaries(
    {"chat_id": st.integers(1, 5) | st.just(-1001), "text": TEXTS.map(lambda text: f"x{text}")},
    optional={
        "extra": st.fixed_dictionaries({"note": nested(PLAIN)}),
        "priority": st.sampled_from(["high", "normal", "low"]),
        "dedup_key": st.text(st.characters(), min_size=1, max_size=3),
        "coalesce_key": st.sampled_from(["a", "b"]),
    },
)
BAD = st.builds(
    lambda good, bad: {**good, **bad},
    GOOD,
    st.fixed_dictionaries({"extra": st.fixed_dictionaries({"note": nested(PLAIN | POISON)})})
    | st.dictionaries(st.sampled_from([5, 0.5, b"raw", None]), PLAIN, min_size=1, max_size=1)
    | st.dictionaries(st.just("text"), st.sampled_from([5, "", None, "\ud800"]), min_size=1),
)
MESSAGES = st.integers(0, 3).flatmap(lambda number: GOOD if number else BAD)


async def _send(gate: Tidegate, fields: Fields) -> list[TicketId]:
    return [(await gate.send(**{str(name): value for name, value in fields.items()})).id]


async def _send_many(gate: Tidegate, fields: Fields) -> list[TicketId]:
    return [ticket.id for ticket in await gate.send_many([fields])]


async def _send_or_queue(gate: Tidegate, fields: Fields) -> list[TicketId]:
    named = {str(name): value for name, value in fields.items()}
    done = await gate.send_or_queue(**named)
    return [done.id] if isinstance(done, LiveTicket) else []


async def _call(gate: Tidegate, fields: Fields) -> list[TicketId]:
    options = ("priority", "dedup_key", "coalesce_key")
    await gate.call("sendMessage", {name: value for name, value in fields.items() if name not in options})
    return []


ENTRIES: list[Entry] = [_send, _send_many, _send_or_queue, _call]


class Run:
    """One store, and the gates that open it one after the other."""

    def __init__(self, clock: VirtualClock, store: DamagedStore, seed: int) -> None:
        self.clock = clock
        self.store = store
        self.draw = random.Random(seed)
        self.telegram = SimulatedTelegram(clock)
        self.accepted: set[TicketId] = set()
        self.readable: set[TicketId] = set()
        self.unreadable: set[TicketId] = set()
        self.campaigns: list[Campaign] = []

    async def gate(self) -> Tidegate:
        gate = await self.store.gate(self.clock, TelegramWire(self.telegram, self.clock))
        gate.add_bot(TOKEN)
        return gate

    async def put(self, gate: Tidegate, messages: list[Fields]) -> None:
        for fields in messages:
            with suppress(BadInputError, NotDeliveredError):  # a direct call is told at once
                self.accepted.update(await self.draw.choice(ENTRIES)(gate, fields))

    async def broadcast(self, gate: Tidegate, messages: list[Fields]) -> None:
        """Each is a letter between two good ones, which go whatever it is."""
        reserved = {"chat_id", "dedup_key"}
        letters = [{name: one[name] for name in one.keys() - reserved} for one in messages]
        chats = [*range(100, 100 + len(letters))]
        rows = [{"chat_id": 7}, *({"chat_id": chat} for chat in chats), {"chat_id": 8}]

        def letter(row: Mapping[str, Any]) -> object:
            chat = row["chat_id"]
            return letters[chat - 100] if chat in chats else "good"

        self.campaigns.append(await gate.broadcast("sale", rows, letter))

    async def finish(self, gate: Tidegate) -> None:
        for campaign in self.campaigns:
            report = await campaign.finished()
            assert report.delivered >= 2
            assert report.read == report.accepted + report.bad
        await gate.drained()

    async def damage(self, gate: Tidegate, share: float) -> None:
        damaged: Damaged = await self.store.damage(gate, self.draw, share)
        self.readable = (self.readable | damaged.readable) - damaged.unreadable
        self.unreadable = (self.unreadable | damaged.unreadable) - damaged.readable

    async def check(self, gate: Tidegate) -> None:
        """Everything has ended: what was damaged as unreadable, unless it can be decoded; the rest well."""
        stats = await gate.stats()
        assert (stats.waiting, stats.sending, stats.parked) == (0, 0, 0)
        for ticket in sorted(self.accepted):
            record = await gate.outbox.find(ticket)
            assert record is not None, f"{ticket} is lost"
            told = (record.state, record.reason, record.description)
            if record.state is State.REPLACED:
                continue
            if ticket in self.unreadable:
                assert told[:2] == (State.DEAD, "unreadable"), told
                assert await gate.outbox.replay([ticket]) == 0
            elif ticket not in self.readable:
                assert record.state is State.DELIVERED, told
        letters = await gate.outbox.dead(limit=10_000)
        dropped = await gate.outbox.drop([letter.message.id for letter in letters])
        assert dropped == len(letters) == stats.dead


async def deliver(clock: VirtualClock, store: DamagedStore, messages: list[Fields], seed: int) -> int:
    """Put, damage, crash while sending, damage again, recover, deliver. Returns how many were accepted."""
    trial = Run(clock, store, seed)
    if store.survives:
        first = await trial.gate()
        await first.core.open()
        await trial.put(first, messages[::2])
        await trial.damage(first, 0.2)
        with suppress(TimeoutError):
            async with clock.timeout(1.0):
                while True:
                    await first.outbox.claim(5)  # its worker dies with these
        await trial.damage(first, 0.4)
        await store.crash(first)
        messages = messages[1::2]
    async with await trial.gate() as gate:
        await trial.put(gate, messages)
        await trial.damage(gate, 0.2)
        await trial.broadcast(gate, messages)
        async with gate.worker(), clock.timeout(600.0):
            await trial.finish(gate)
            good = await gate.send(chat_id=7, text="after it all")
            await good.delivered(timeout=60)
        await trial.check(gate)
    await store.close()
    return len(trial.accepted)


def deliver_all(name: str, messages: list[Fields], seed: int) -> int:
    with folder_for_a_run() as folder:
        store = DAMAGED_STORES[name](Path(folder))
        return run(lambda clock: deliver(clock, store, messages, seed))


@pytest.mark.parametrize("name", DAMAGED_STORES)
@settings(max_examples=15, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(MESSAGES, min_size=1, max_size=20), st.integers(0, 2**32))
def test_poison_is_set_aside_and_everything_else_is_delivered(
    name: str, messages: list[Fields], seed: int
) -> None:
    deliver_all(name, messages, seed)


@pytest.mark.proof
@pytest.mark.parametrize("name", DAMAGED_STORES)
@settings(max_examples=250, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(MESSAGES, min_size=40, max_size=40), st.integers(0, 2**32))
def test_ten_thousand_messages_with_poison_among_them(name: str, messages: list[Fields], seed: int) -> None:
    deliver_all(name, messages, seed)
