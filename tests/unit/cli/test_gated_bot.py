"""The demo's bot with Tidegate, in virtual time: nobody is refused, and it stops with work left."""

from tidegate import Tidegate
from tidegate.cli import loop
from tidegate.cli.demo.bots import GatedBot
from tidegate.sim.telegram import Crowd, Faults, Latency, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

EACH_WAY = Latency(5, 40)


async def test_bot_broadcasts_and_replies_without_a_refusal_and_stops_with_work_left(
    clock: VirtualClock,
) -> None:
    telegram = SimulatedTelegram(clock, faults=Faults(latency_in=EACH_WAY, latency_out=EACH_WAY), seed=1)
    known = telegram.world.bot("42:any")
    assert known is not None
    crowd = Crowd(telegram, known, users=20, seed=1)
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot("42:any")
    bot = GatedBot(gate)

    async with (
        gate,
        gate.worker(grace=1),
        loop.beside(crowd.run(20)),
        loop.beside(bot.answer()),
        loop.beside(bot.broadcast(range(1, 1_001), "News #1")),
    ):
        await clock.sleep(20)

    report, stats = telegram.report(), await gate.stats()
    assert (report["refused"], report["doubled"], report["out_of_order"]) == (0, 0, 0)
    assert report["avg_rps"] > 0.85 * 30
    assert crowd.report()["p99_ms"] < 1_000
    assert crowd.answered > 50
    assert stats.delivered + stats.waiting == 1_000
    assert (stats.sending, stats.parked, stats.dead) == (0, 0, 0)


async def test_bot_goes_on_after_calls_whose_answers_are_lost(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, faults=Faults(lost_answer=0.3), seed=1)
    known = telegram.world.bot("42:any")
    assert known is not None
    crowd = Crowd(telegram, known, users=5, seed=1)
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot("42:any")

    async with gate, loop.beside(crowd.run(60)), loop.beside(GatedBot(gate).answer()):
        await clock.sleep(60)

    assert telegram.report()["faults"]["lost_answer"] > 10
    assert crowd.answered > 50
