"""Pages of polling, reminders, jobs and flows."""

import datetime as dt

import pytest

from api_caller import Answer
from tidegate.flows import FlowBuilder, Session
from tidegate.flows.port import FlowSessionStore, SessionKey
from tidegate.flows.registry import RunningFlow
from tidegate.jobs.record import NewJob
from tidegate.ops.api.reminders import day_of
from tidegate.polling.per_user import UserPoller
from tidegate.reminders.occurrences import time_zone
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.flow_sessions import MemoryFlowSessions
from unit.ops.api.service import BOT, CHAT, OTHER_BOT, SECRET_TEXT, Service, problem

EVIL = '"><script>alert(1)</script>'
PATHS = ("/sources", "/polling", "/reminders", "/jobs", "/flows")


def page(answer: Answer) -> str:
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.body.decode()


def main(answer: Answer) -> str:
    return page(answer).partition("<main")[2]


@pytest.mark.parametrize("path", PATHS)
async def test_each_page_shows_the_others_and_its_place_in_the_menu(service: Service, path: str) -> None:
    shown = page(await service.viewer.get(path))
    assert f'<a href="{path}" aria-current="page"' in shown
    assert '<a href="/sources" data-key="s" aria-current="page"' in shown


@pytest.mark.parametrize(
    ("path", "taught"),
    [
        ("/polling", "No poller runs in this process"),
        ("/reminders", "No reminder yet"),
        ("/jobs", "No job yet"),
        ("/flows", "No flow runs in this process"),
    ],
)
async def test_an_empty_page_teaches(service: Service, path: str, taught: str) -> None:
    assert taught in page(await service.viewer.get(path))


@pytest.mark.parametrize(
    "path",
    [
        "/reminders?zone=Nowhere/Land",
        "/reminders?step=7",
        "/reminders?user=x",
        "/reminders?bot=x",
        "/reminders?cursor=x",
        "/reminders?chat=%00",
        "/jobs?state=odd",
        "/jobs?cursor=x",
        "/jobs/0",
        "/jobs/x",
        "/jobs/" + "9" * 40,
        "/jobs/9223372036854775807",
        "/jobs/٣",
        "/flows/none",
        "/flows/%00",
        "/flows?bot=x",
    ],
)
async def test_bad_input_gives_a_page_with_a_sentence(service: Service, path: str) -> None:
    await service.put_reminder()
    answer = await service.admin.get(path)
    assert answer.status in {404, 422}
    assert 'role="alert"' in page(answer)


async def test_a_poller_is_shown_with_its_numbers(service: Service, clock: VirtualClock) -> None:
    async def fetch(_: str) -> None: ...

    poller = UserPoller(fetch, name="payments <b>", clock=clock)
    service.gate.add_poller(poller)
    await poller.subscribe("order-1")

    shown = page(await service.viewer.get("/polling"))

    assert "payments &lt;b&gt;" in shown
    assert "Requests avoided" in shown
    assert "No poller" not in shown


async def test_polling_is_about_all_bots(service: Service) -> None:
    other = await service.caller("admin", OTHER_BOT)
    assert (await other.get("/polling")).status == 403
    assert "Shown to tokens for all bots" in page(await other.get("/sources"))


async def test_reminders_are_listed_with_what_operators_can_do(service: Service) -> None:
    number = await service.put_reminder()

    by_operator = main(await service.operator.get("/reminders"))
    by_viewer = main(await service.viewer.get("/reminders"))

    assert SECRET_TEXT in by_operator
    assert "every day at 09:00" in by_operator
    for verb in ("pause", "skip", "snooze"):
        assert f'data-action="/api/v1/reminders/{number}/{verb}"' in by_operator
    assert SECRET_TEXT not in by_viewer
    assert "hidden from viewers" in by_viewer
    assert "data-action" not in by_viewer


async def test_reminders_of_another_bot_are_neither_listed_nor_in_the_curve(service: Service) -> None:
    await service.put_reminder()
    other = await service.caller("viewer", OTHER_BOT)

    assert "every day at 09:00" not in page(await other.get("/reminders?zone=Europe/Berlin"))
    answer = await other.get("/api/v1/reminders/forecast?span=day&zone=Europe/Berlin")
    assert (answer.json["total"], answer.json["bot"]) == (0, OTHER_BOT)


async def test_the_curve_has_what_fires_today_on_the_clocks_of_the_zone(
    service: Service, clock: VirtualClock
) -> None:
    zone = time_zone("Europe/Berlin")
    _, midnight = day_of(clock.now(), zone)
    await clock.sleep(midnight + 8 * 3600 - clock.now())
    today = dt.datetime.fromtimestamp(clock.now(), zone)
    at = (today + dt.timedelta(minutes=20)).replace(second=0, microsecond=0)
    await service.gate.reminders.add(CHAT, bot=BOT, text="Hi", at=f"{at:%H:%M}", every="day", zone=zone.key)

    hour = (await service.viewer.get("/api/v1/reminders/forecast?span=hour&zone=Europe/Berlin")).json

    assert len(hour["counts"]) == 60
    assert hour["total"] == hour["most"] == 1
    assert hour["most_at"] == at.timestamp()
    day = (await service.viewer.get("/api/v1/reminders/forecast?zone=Europe/Berlin")).json
    assert (len(day["counts"]), day["total"]) == (144, 1)
    assert day["counts"][(at.hour * 60 + at.minute) // 10] == 1


def test_a_day_has_23_or_25_hours_when_the_clocks_change() -> None:
    zone = time_zone("Europe/Berlin")
    for date, hours in (((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 6, 1), 24)):
        noon = dt.datetime(*date, 12, tzinfo=zone).timestamp()
        start, end = day_of(noon, zone)
        assert end - start == hours * 3600
        assert start <= noon < end


async def test_an_unknown_zone_is_a_problem(service: Service) -> None:
    status, _, detail = problem(await service.viewer.get("/api/v1/reminders/forecast?zone=../../etc/passwd"))
    assert status == 422
    assert "not a time zone" in detail


async def test_a_job_is_shown_with_its_arguments_to_operators_alone(service: Service) -> None:
    number = await service.put_job()

    by_operator = page(await service.operator.get(f"/jobs/{number}"))
    by_viewer = page(await service.viewer.get(f"/jobs/{number}"))

    assert SECRET_TEXT in by_operator
    assert f'data-action="/api/v1/jobs/{number}/cancel"' in by_operator
    assert SECRET_TEXT not in by_viewer
    assert "hidden from viewers" in by_viewer
    assert f'href="/jobs/{number}"' in page(await service.viewer.get("/jobs"))


async def test_a_job_of_another_bot_is_not_found(service: Service) -> None:
    number = await service.put_job()
    other = await service.caller("admin", OTHER_BOT)
    assert (await other.get(f"/jobs/{number}")).status == 404
    assert f"/jobs/{number}" not in page(await other.get("/jobs"))


async def test_jobs_are_counted_by_state_and_filtered(service: Service) -> None:
    number = await service.put_job()
    await service.gate.jobs.cancel(number)
    await service.gate.jobs.submit(NewJob(name=EVIL), bot=BOT)

    shown = page(await service.operator.get("/jobs?state=cancelled"))

    assert f'href="/jobs/{number}"' in shown
    assert "<script>alert" not in shown
    assert "/jobs?name=label&amp;state=cancelled" in shown
    assert "No job is like that" in page(await service.operator.get("/jobs?state=dead"))
    assert f'data-action="/api/v1/jobs/{number}/retry"' in page(await service.operator.get(f"/jobs/{number}"))


async def test_a_flow_is_drawn_with_how_many_people_stand_in_each_state(service: Service) -> None:
    await service.run_flow(people=3)

    shown = page(await service.viewer.get("/flows/order"))
    answer = (await service.viewer.get("/api/v1/flows/order")).json

    assert '<svg xmlns="http://www.w3.org/2000/svg" class="flow"' in shown
    assert "3 here" in shown
    assert "<style" not in shown
    assert SECRET_TEXT not in shown
    assert answer["people"] == 3
    assert [(one["name"], one["people"]) for one in answer["states"]] == [("choosing", 3), ("bought", 0)]
    assert "3 here" in answer["svg"]
    assert answer["mermaid"].startswith("stateDiagram-v2")
    assert f'href="/flows/order?bot={BOT}"' in page(await service.viewer.get("/flows"))


async def test_a_flow_of_another_bot_is_not_found(service: Service) -> None:
    await service.run_flow()
    other = await service.caller("admin", OTHER_BOT)
    assert (await other.get("/flows/order")).status == 404
    assert "No flow runs" in page(await other.get("/flows"))


async def test_of_two_bots_with_a_flow_of_one_name_one_has_to_be_said(service: Service) -> None:
    await service.run_flow()
    await service.run_flow(OTHER_BOT)
    assert (await service.viewer.get("/flows/order")).status == 422
    assert "2 here" in page(await service.viewer.get(f"/flows/order?bot={OTHER_BOT}"))


async def test_a_hostile_flow_is_escaped(service: Service) -> None:
    declared = FlowBuilder("evil")
    declared.command("/start", to=EVIL)
    declared.state(EVIL, say="x").button(EVIL, to=EVIL)
    declared.final("end", say="x")
    flow, store = declared.build_unchecked(), MemoryFlowSessions("evil")
    await store.commit(SessionKey(BOT, 1, 1), Session(flow="evil", state=EVIL, visit=1), expected=0)
    other = await service.run_flow()
    [running] = [one for one in service.gate.core.flows.all() if one.flow.name == other]
    service.gate.core.flows.add(RunningFlow(flow, BOT, store, running.stats, service.gate.clock))

    for path in ("/flows", "/flows/evil"):
        assert "<script>alert" not in page(await service.operator.get(path))


class CountedStore(MemoryFlowSessions):
    """Counts how often it is counted."""

    def __init__(self, flow: str) -> None:
        super().__init__(flow)
        self.times = 0

    async def count_states(self) -> dict[tuple[int, str], int]:
        self.times += 1
        return await super().count_states()


async def test_people_are_counted_once_for_all_who_look(service: Service, clock: VirtualClock) -> None:
    await service.run_flow()
    [known] = service.gate.core.flows.all()
    store: FlowSessionStore = (counted := CountedStore("order"))
    running = RunningFlow(known.flow, BOT, store, known.stats, clock)
    service.gate.core.flows.add(running)

    for _ in range(5):
        await service.viewer.get("/flows/order")
    assert counted.times == 1
    await clock.sleep(3)
    await service.viewer.get("/flows/order")
    assert counted.times == 2

    service.gate.core.flows.remove(known)  # another one has taken its place
    assert service.gate.core.flows.all() == [running]
    service.gate.core.flows.remove(running)
    assert service.gate.core.flows.all() == []
