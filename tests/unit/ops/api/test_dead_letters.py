"""Dead letters over HTTP: list, show, replay and drop, one by one or in bulk."""

from typing import Any

import pytest

from api_caller import Answer
from tidegate.model import Dead, Settlement, State, TicketId, Unknown
from tidegate.ops.letter_actions import LEASE, LETTERS_PER_STEP, LOOK_EVERY, PendingActions
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, OTHER_BOT, Service, problem

LETTERS = "/api/v1/dead-letters"


async def park(service: Service) -> TicketId:
    """Put a message whose outcome stays unknown."""
    ticket = await service.put(5, on_unknown="park")
    await service.gate.outbox.start_sending()
    claims = await service.gate.outbox.claim(10)
    await service.gate.outbox.settle([Settlement(claim, Unknown("timeout")) for claim in claims])
    assert await service.state_of(ticket) == State.PARKED
    return ticket


async def listed(service: Service, query: str = "") -> list[str]:
    return [item["id"] for item in (await service.viewer.get(f"{LETTERS}?{query}")).json["items"]]


async def test_letters_are_listed_by_reason_state_bot_and_chat(service: Service) -> None:
    blocked, failed = await service.put_letter(1), await service.put_letter(2, OTHER_BOT, "attempts")
    parked = await park(service)
    waiting = await service.put(4)
    assert set(await listed(service)) == {blocked, failed, parked}
    assert await listed(service, "reason=attempts") == [failed]
    assert await listed(service, "state=parked") == [parked]
    assert await listed(service, f"bot={BOT}&state=dead") == [blocked]
    assert await listed(service, "chat_id=2") == [failed]
    assert problem(await service.viewer.get(f"{LETTERS}/{waiting}"))[0] == 404


async def test_a_letter_is_replayed_and_another_is_dropped(service: Service) -> None:
    one, other = await service.put_letter(1), await service.put_letter(2)
    assert (await service.operator.post(f"{LETTERS}/{one}/replay")).json == {"done": True}
    assert (await service.operator.call("DELETE", f"{LETTERS}/{other}")).json == {"done": True}
    assert await service.state_of(one) == State.QUEUED
    assert await service.gate.outbox.find(other) is None
    assert await service.audited() == ["dead_letters.replay", "dead_letters.drop"]
    assert problem(await service.operator.post(f"{LETTERS}/{one}/replay"))[0] == 404


@pytest.mark.parametrize("verb", ["replay", "drop"])
async def test_a_dry_run_counts_and_changes_nothing(service: Service, verb: str) -> None:
    letters = [await service.put_letter(chat) for chat in (1, 2, 3)]
    answer = await service.operator.post(f"{LETTERS}/{verb}", {"reason": "blocked", "dry_run": True})
    assert answer.json == {
        "selected": 3,
        "done": 0,
        "more": False,
        "dry_run": True,
        "ended_by": service.gate.clock.now(),
        "undo": None,
        "due_at": None,
    }
    assert await listed(service) == letters


async def test_letters_are_replayed_by_a_filter(service: Service, clock: VirtualClock) -> None:
    old = await service.put_letter(1)
    await clock.sleep(100)
    young, other = await service.put_letter(2), await service.put_letter(3, reason="attempts")
    parked = await park(service)

    async def replay(**selection: Any) -> tuple[int, int, bool]:  # noqa: ANN401
        done = (await service.operator.post(f"{LETTERS}/replay", selection)).json
        return done["selected"], done["done"], done["more"]

    assert await replay(older_than=50) == (1, 1, False)
    assert await service.state_of(old) == State.QUEUED
    assert await replay(reason="attempts") == (1, 1, False)
    assert await replay(everything=True) == (1, 1, False)
    assert await listed(service) == [parked], "they may have been delivered: only by id or by their state"
    assert await replay(ids=[parked]) == (1, 1, False)
    assert {await service.state_of(one) for one in (old, young, other, parked)} == {State.QUEUED}


async def test_one_request_does_no_more_than_its_limit(service: Service) -> None:
    for chat in range(1, 6):
        await service.put_letter(chat)
    first = (await service.operator.post(f"{LETTERS}/drop", {"everything": True, "limit": 3})).json
    rest = (await service.operator.post(f"{LETTERS}/drop", {"everything": True, "limit": 3})).json
    assert (first["done"], first["more"], rest["done"], rest["more"]) == (3, True, 2, False)


@pytest.mark.parametrize(
    "selection", [{}, {"ids": ["a"], "reason": "blocked"}, {"reason": "blocked", "older": 3}, {"limit": 5}]
)
async def test_letters_that_are_not_described_are_left_alone(
    service: Service, selection: dict[str, Any]
) -> None:
    letter = await service.put_letter()
    assert problem(await service.operator.post(f"{LETTERS}/drop", selection))[0] == 422
    assert await listed(service) == [letter]


async def test_a_token_of_one_bot_works_off_letters_of_that_one(service: Service) -> None:
    foreign, own = await service.put_letter(1), await service.put_letter(2, OTHER_BOT)
    caller = await service.caller("operator", OTHER_BOT)
    assert (await caller.post(f"{LETTERS}/drop", {"everything": True})).json["done"] == 1
    assert problem(await caller.post(f"{LETTERS}/drop", {"ids": [foreign]}))[0] == 404
    assert await listed(service) == [foreign]
    assert await service.gate.outbox.find(own) is None


async def put_letters(service: Service, count: int) -> list[TicketId]:
    """Put many messages to chats of their own, and let them die."""
    tickets = [await service.put(chat, priority="high", urgent=True) for chat in range(1, count + 1)]
    await service.gate.outbox.start_sending()
    dead = Dead("blocked", "gone")
    while claims := await service.gate.outbox.claim(1_000):
        await service.gate.outbox.settle([Settlement(claim, dead) for claim in claims])
        if (await service.gate.stats()).dead == count:
            break
    return tickets


async def test_more_letters_than_a_step_are_all_dropped(service: Service) -> None:
    await put_letters(service, 2 * LETTERS_PER_STEP + 100)

    done = (await service.operator.post(f"{LETTERS}/drop", {"reason": "blocked"})).json

    assert (done["selected"], done["done"], done["more"]) == (1_100, 1_100, False)
    assert await listed(service) == []


async def test_letters_are_counted_by_bot_state_and_reason(service: Service) -> None:
    first, last = await service.put_letter(1), await service.put_letter(2)
    await service.put_letter(3, OTHER_BOT, "attempts")
    parked = await park(service)

    groups = (await service.viewer.get(f"{LETTERS}/reasons")).json["items"]

    found = {(one["bot"], one["state"], one["reason"]): (one["count"], one["latest"]) for one in groups}
    assert found[BOT, "dead", "blocked"] == (2, last)
    assert found[BOT, "parked", "unknown"] == (1, parked)
    assert found[OTHER_BOT, "dead", "attempts"][0] == 1
    assert first not in {latest for _, latest in found.values()}
    own = (await service.viewer.get(f"{LETTERS}/reasons?bot={OTHER_BOT}")).json["items"]
    assert [one["reason"] for one in own] == ["attempts"]


async def ask(service: Service, verb: str = "drop", **selection: Any) -> Answer:  # noqa: ANN401
    return await service.operator.post(f"{LETTERS}/{verb}", {"undo_for": 15, **selection})


async def pending(service: Service) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await service.viewer.get(f"{LETTERS}/pending")).json["items"]
    return items


async def test_nothing_is_dropped_before_the_time_to_undo_it_is_over(
    service: Service, clock: VirtualClock
) -> None:
    letters = [await service.put_letter(chat) for chat in (1, 2)]

    asked = (await ask(service, reason="blocked")).json

    assert (asked["selected"], asked["done"]) == (2, 0)
    assert asked["due_at"] == pytest.approx(clock.now() + 15)
    [shown] = await pending(service)
    assert (shown["action"], shown["reason"], shown["selected"], shown["undo"]) == (
        "drop",
        "blocked",
        2,
        asked["undo"],
    )
    await clock.sleep(14.9)
    assert await listed(service) == letters
    await clock.sleep(0.2)
    assert await listed(service) == []
    assert await pending(service) == []
    assert await service.audited() == ["dead_letters.drop", "dead_letters.drop"]
    [done, request] = await service.access.audit()
    assert (request.principal, request.detail) == ("operator", "2 by {'reason': 'blocked', 'undo_for': 15.0}")
    assert (done.principal, done.token_id, done.target) == ("operator", request.token_id, request.target)
    assert done.detail == "2 of 2 by reason=blocked state=dead"


async def test_what_is_undone_never_happens_and_both_are_in_the_audit_log(
    service: Service, clock: VirtualClock
) -> None:
    letter = await service.put_letter()
    undo = (await ask(service, everything=True)).json["undo"]

    assert (await service.operator.post(undo)).json == {"undone": True}

    await clock.sleep(120)
    assert await listed(service) == [letter]
    assert problem(await service.operator.post(undo))[:2] == (404, "not-found")
    assert await service.audited() == ["dead_letters.drop", "dead_letters.undo"]


async def test_letters_are_replayed_when_it_cannot_be_undone_any_more(
    service: Service, clock: VirtualClock
) -> None:
    one, other, parked = await service.put_letter(1), await service.put_letter(2), await park(service)
    await service.gate.outbox.pause(BOT)
    undo = (await ask(service, "replay", ids=[one, parked])).json["undo"]
    await clock.sleep(16)
    assert [await service.state_of(ticket) for ticket in (one, parked)] == ["queued", "queued"]
    assert await listed(service) == [other]
    assert problem(await service.operator.post(undo))[0] == 404


async def test_letters_that_die_meanwhile_are_not_meant(service: Service, clock: VirtualClock) -> None:
    await service.put_letter(1)
    await ask(service, reason="blocked")
    await clock.sleep(5)
    later = await service.put_letter(2)
    await clock.sleep(15)
    assert await listed(service) == [later]


async def test_what_a_dry_run_has_counted_is_what_is_dropped(service: Service, clock: VirtualClock) -> None:
    await service.put_letter(1)
    counted = (await service.operator.post(f"{LETTERS}/drop", {"reason": "blocked", "dry_run": True})).json
    await clock.sleep(5)
    later = await service.put_letter(2)
    asked = (await ask(service, reason="blocked", ended_by=counted["ended_by"])).json
    assert (counted["selected"], asked["selected"]) == (1, 1)
    await clock.sleep(16)
    assert await listed(service) == [later]


async def test_a_dry_run_leaves_nothing_pending(service: Service) -> None:
    await service.put_letter()
    answer = (await ask(service, everything=True, dry_run=True)).json
    assert (answer["selected"], answer["undo"]) == (1, None)
    assert await pending(service) == []


@pytest.mark.parametrize("seconds", [0, -1, 61, "soon"])
async def test_a_time_to_undo_has_bounds(service: Service, seconds: object) -> None:
    assert problem(await ask(service, everything=True, undo_for=seconds))[0] == 422
    assert await pending(service) == []


async def test_a_token_of_one_bot_sees_and_undoes_what_is_of_that_one(service: Service) -> None:
    await service.put_letter()
    undo = (await ask(service, bot=BOT)).json["undo"]
    of_all = (await ask(service, everything=True)).json["undo"]
    foreign, own = await service.caller("operator", OTHER_BOT), await service.caller("operator", BOT)

    assert (await foreign.get(f"{LETTERS}/pending")).json["items"] == []
    assert [one["undo"] for one in (await own.get(f"{LETTERS}/pending")).json["items"]] == [undo]
    assert problem(await foreign.post(undo))[0] == 404
    assert problem(await own.post(of_all))[0] == 404
    assert problem(await service.viewer.post(undo))[0] == 403
    assert (await own.post(undo)).json == {"undone": True}


async def test_what_a_process_asked_for_is_done_by_another_one_if_it_ends(
    service: Service, clock: VirtualClock
) -> None:
    await put_letters(service, LETTERS_PER_STEP + 1)
    await ask(service, everything=True)
    await service.app.stop()
    await clock.sleep(60)
    other = PendingActions(service.pending, service.gate.outbox, service.access, clock)
    async with service.gate, other.running():
        await clock.sleep(1)

        assert (await service.gate.stats()).dead == 0
    await service.app.start()


async def test_a_change_that_a_process_left_half_done_is_finished_by_another_one(
    service: Service, clock: VirtualClock
) -> None:
    letters = await put_letters(service, 3)
    await ask(service, everything=True)
    await clock.sleep(14)
    claimed = await service.pending.claim(clock.now() + 2, LEASE)  # by a process that dies after one of them
    assert claimed is not None
    await service.gate.outbox.drop(letters[:1])
    await service.pending.extend(claimed, 1, clock.now() + LEASE)
    [shown] = await pending(service)
    assert (shown["undo"], shown["done"]) == (None, 1)
    path = f"{LETTERS}/pending/{shown['id']}/undo"
    assert problem(await service.operator.post(path))[:2] == (409, "conflict")

    await clock.sleep(LEASE + LOOK_EVERY + 1)

    assert await listed(service) == []
    [done, *_] = await service.access.audit()
    assert done.detail == "3 of 3 by state=dead"


async def test_a_change_waits_for_a_database_that_is_away(service: Service, clock: VirtualClock) -> None:
    letter = await service.put_letter()
    await ask(service, everything=True)
    service.pending.away = True
    await clock.sleep(60)
    assert await listed(service) == [letter]
    assert problem(await ask(service, everything=True))[0] == 503
    service.pending.away = False
    await clock.sleep(60)
    assert await listed(service) == []
