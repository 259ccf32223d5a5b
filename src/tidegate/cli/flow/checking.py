"""What is wrong with a flow, for people and programs."""

import msgspec

from tidegate.cli.flow.finding import find_flow
from tidegate.cli.terminal import printable, put_json, put_line
from tidegate.flows.flow import Flow
from tidegate.flows.problems import Problem
from tidegate.flows.triggers import ways_of


def check(where: str, *, as_json: bool) -> int:
    """Returns the exit code."""
    flow = find_flow(where)
    problems = flow.validate()
    if as_json:
        put_json(_report(flow, problems))
    else:
        for problem in problems:
            put_line(printable(problem))
        put_line(printable(_summary(flow, problems)))
    return 1 if problems else 0


def _report(flow: Flow, problems: list[Problem]) -> dict[str, object]:
    return {
        "flow": flow.name,
        "passed": not problems,
        "states": len(flow.states),
        "ways": _ways(flow),
        "problems": [msgspec.structs.asdict(problem) for problem in problems],
    }


def _summary(flow: Flow, problems: list[Problem]) -> str:
    if problems:
        return f"flow {flow.name}: {len(problems)} {'problem' if len(problems) == 1 else 'problems'}"
    return f"flow {flow.name} is sound: {len(flow.states)} states, {_ways(flow)} ways"


def _ways(flow: Flow) -> int:
    return sum(len(ways_of(state)) for state in flow.states) + len(flow.commands)
