"""Reminders and jobs over HTTP."""

from typing import Any

import pytest

from tidegate import Tidegate
from tidegate.jobs.record import JobState
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, CHAT, OTHER_BOT, SECRET_TEXT, Service, problem

REMINDERS, JOBS = "/api/v1/reminders", "/api/v1/jobs"
DAILY = {
    "bot": BOT,
    "chat_id": CHAT,
    "text": "Drink!",
    "at": "09:00",
    "every": "day",
    "zone": "Europe/Berlin",
}


async def test_a_reminder_is_added_listed_and_removed(service: Service) -> None:
    added = await service.operator.post(REMINDERS, DAILY | {"key": "water", "parse_mode": "HTML"})
    assert added.status == 201
    one = added.json
    assert (one["state"], one["fields"]) == ("active", {"text": "Drink!", "parse_mode": "HTML"})
    listed = (await service.viewer.get(f"{REMINDERS}?bot={BOT}&chat_id={CHAT}")).json["items"]
    assert [item["id"] for item in listed] == [one["id"]]
    assert listed[0]["fields"] is None
    assert (await service.viewer.get(f"{REMINDERS}/counts")).json["active"] == 1
    path = f"{REMINDERS}/{one['id']}"
    assert (await service.operator.call("DELETE", path)).json == {"removed": True}
    assert problem(await service.viewer.get(path))[0] == 404


async def test_a_reminder_is_paused_resumed_skipped_and_snoozed(
    service: Service, clock: VirtualClock
) -> None:
    path = f"{REMINDERS}/{await service.put_reminder()}"
    first = (await service.viewer.get(path)).json["next_at"]
    assert (await service.operator.post(f"{path}/pause")).json["state"] == "paused"
    assert (await service.operator.post(f"{path}/resume")).json["state"] == "active"
    assert (await service.operator.post(f"{path}/skip")).json["next_at"] > first
    snoozed = await service.operator.post(f"{path}/snooze", {"seconds": 600})
    assert snoozed.json["next_at"] == pytest.approx(clock.now() + 600)
    until = clock.now() + 900
    assert (await service.operator.post(f"{path}/snooze", {"until": until})).json["next_at"] == until
    past = await service.operator.post(f"{path}/snooze", {"until": clock.now() - 1})
    assert (past.status, past.json["detail"]) == (
        422,
        "until is past: give a time to come, or seconds from now",
    )
    verbs = ["pause", "resume", "skip", "snooze", "snooze"]
    assert await service.audited() == [f"reminders.{verb}" for verb in verbs]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (REMINDERS, DAILY | {"every": "blue moon"}),
        (REMINDERS, DAILY | {"evry": "day"}),
        (REMINDERS, {"chat_id": CHAT, "text": "x"}),
        (f"{REMINDERS}/1/snooze", {}),
        (f"{REMINDERS}/1/snooze", {"seconds": 5, "until": 10}),
        (f"{REMINDERS}/1/snooze", {"until": 10}),
    ],
)
async def test_a_reminder_that_cannot_be_meant_is_refused(
    service: Service, path: str, body: dict[str, Any]
) -> None:
    await service.put_reminder()
    assert problem(await service.operator.post(path, body))[:2] == (422, "bad-input")


async def test_looking_at_reminders_and_jobs_creates_no_database(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exist() -> bool:
        return False

    monkeypatch.setattr(service.gate.jobs, "exist", exist)
    monkeypatch.setattr(service.gate.reminders, "exist", exist)
    monkeypatch.setattr(Tidegate, "database", property(lambda _: pytest.fail("it was opened")))
    assert (await service.viewer.get(REMINDERS)).json["items"] == []
    assert (await service.viewer.get(f"{REMINDERS}/counts")).json["active"] == 0
    assert problem(await service.viewer.get(f"{REMINDERS}/1"))[0] == 404
    assert (await service.viewer.get(JOBS)).json["items"] == []
    assert (await service.viewer.get(f"{JOBS}/counts")).json["items"] == []
    assert problem(await service.viewer.get(f"{JOBS}/1"))[0] == 404


async def test_reminders_and_jobs_are_listed_page_by_page(service: Service) -> None:
    reminders = [await service.put_reminder() for _ in range(3)]
    jobs = [await service.put_job() for _ in range(3)]
    for path, ids in ((REMINDERS, reminders), (JOBS, jobs[::-1])):
        first = (await service.viewer.get(f"{path}?limit=2")).json
        rest = (await service.viewer.get(f"{path}?limit=2&cursor={first['next_cursor']}")).json
        assert [item["id"] for item in first["items"] + rest["items"]] == ids
        assert rest["next_cursor"] is None


async def test_jobs_are_listed_counted_cancelled_and_retried(service: Service) -> None:
    job, other = await service.put_job(), await service.put_job(OTHER_BOT)
    path = f"{JOBS}/{job}"
    assert (await service.operator.get(path)).json["args"] == [SECRET_TEXT]
    assert (await service.viewer.get(path)).json["args"] is None
    listed = (await service.viewer.get(f"{JOBS}?bot={OTHER_BOT}&state=queued&name=label&chat_id={CHAT}")).json
    assert [item["id"] for item in listed["items"]] == [other]

    assert (await service.operator.post(f"{path}/cancel")).json["state"] == JobState.CANCELLED
    assert problem(await service.operator.post(f"{path}/cancel"))[:2] == (409, "conflict")
    assert (await service.viewer.get(f"{JOBS}/counts")).json == {
        "items": [
            {"name": "label", "state": "cancelled", "count": 1},
            {"name": "label", "state": "queued", "count": 1},
        ],
        "waiting": 1,
    }
    assert (await service.operator.post(f"{path}/retry")).json["state"] == JobState.QUEUED
    assert problem(await service.operator.post(f"{path}/retry"))[:2] == (409, "conflict")
    assert await service.audited() == ["jobs.cancel", "jobs.retry"]
