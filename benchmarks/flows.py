"""What a conversation costs: to check it before it runs, and for each event and person while it does.

    python benchmarks/flows.py [--json]

Checked are flows of 1,000 states: a chain, where each leads to the next; and a thicket, where each also leads
to ten others, polls for a field of its own, and can be left by ten commands. Steps are those of a short
order, with the session written as JSON and read again each time, as a store would. People in flight are
sessions that wait for a payment, as objects in memory and as what is written. Times are CPU time, the median
of five; memory is the growth of resident memory (RSS).
"""

import json
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidegate.flows import Flow, FlowBuilder, Poll, Session, State, Transition, read_session, step
from tidegate.flows.events import Begin, FlowEvent, Polled, Text, WorkDone

STATES: Final = 1_000
ORDERS: Final = 5_000
PEOPLE: Final = 100_000
ROUNDS: Final = 5


def chain() -> Flow:
    states = [State(f"s{n}", say="Hi", on=(Transition("text", f"s{n + 1}"),)) for n in range(STATES)]
    return Flow(name="chain", initial="s0", states=(*states, State(f"s{STATES}", final=True)))


def thicket() -> Flow:
    dice = random.Random(0)
    states = [State(f"s{n}", say="Hi {key0}", on=_ways(n, dice), poll=_poll(n)) for n in range(STATES)]
    commands = {f"/to{n}": f"s{n * 97}" for n in range(10)}
    given = tuple(f"key{n}" for n in range(STATES))
    end = State(f"s{STATES}", final=True)
    return Flow(name="thicket", initial="s0", states=(*states, end), commands=commands, given=given)


def _ways(number: int, dice: random.Random) -> tuple[Transition, ...]:
    others = [Transition(f"signal:{n}", f"s{dice.randrange(STATES)}", save=f"key{number}") for n in range(10)]
    return (Transition("text", f"s{number + 1}", save=f"key{number}"), *others)


def _poll(number: int) -> Poll:
    return Poll("payment", f"key{number}", f"s{STATES}")


def order() -> Flow:
    flow = FlowBuilder("order", lifetime=86_400)
    flow.state("item", say="What would you like?").on("text", to="ordering", save="item")
    flow.state("ordering", say="A moment.").run("create", done="waiting", failed="sorry", save=("order_id",))
    waiting = flow.state("waiting", say="Please pay {order_id} for {item}.").button("Cancel", to="sorry")
    waiting.poll("payment", key="order_id", met="paid").timeout(900, say="Still there?")
    flow.final("paid", say="Thank you.")
    flow.final("sorry", say="Sorry.")
    return flow.build()


def until_waiting(flow: Flow, number: int) -> Session:
    session = take(flow, None, Begin(id=f"{number}a", at=1.8e9))
    session = take(flow, session, Text("Tea", id=f"{number}b", at=1.8e9))
    result = {"order_id": f"order-{number}"}
    return take(flow, session, WorkDone("create", session.visit, result, id=f"{number}c", at=1.8e9))


def take(flow: Flow, session: Session | None, event: FlowEvent) -> Session:
    after = step(flow, session, event).session
    assert after is not None
    return read_session(after.done().to_json())


def orders(flow: Flow) -> None:
    for number in range(ORDERS):
        session = until_waiting(flow, number)
        take(flow, session, Polled("payment", f"order-{number}", id=f"{number}d", at=1.8e9))


def cpu_seconds(act: Callable[[], object]) -> float:
    return statistics.median(_once(act) for _ in range(ROUNDS))


def _once(act: Callable[[], object]) -> float:
    started = time.process_time()
    act()
    return time.process_time() - started


def in_flight(flow: Flow) -> dict[str, float]:
    before = _rss()
    people = [until_waiting(flow, number) for number in range(PEOPLE)]
    grown = _rss() - before
    written = statistics.mean(len(session.to_json()) for session in people[::1_000])
    return {"bytes in memory": grown / PEOPLE, "bytes written": written, f"MB for {PEOPLE:,}": grown / 2**20}


def _rss() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def measure() -> dict[str, float]:
    flow = order()
    figures = in_flight(flow)  # first, while memory is fresh
    for declared in (chain(), thicket()):
        assert [problem for problem in declared.validate() if problem.kind != "unreachable"] == []
        figures[f"ms to check {declared.name}"] = cpu_seconds(declared.validate) * 1_000
        figures[f"ms to draw {declared.name}"] = cpu_seconds(declared.diagram) * 1_000
    figures["µs per event"] = cpu_seconds(lambda: orders(flow)) / (ORDERS * 4) * 1e6
    return {name: round(figure, 1) for name, figure in figures.items()}


if __name__ == "__main__":
    measured = measure()
    if "--json" in sys.argv:
        print(json.dumps(measured))
    else:
        print("| what | figure |\n|---|---:|")
        print("\n".join(f"| {name} | {figure:,} |" for name, figure in measured.items()))
