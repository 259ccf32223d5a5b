"""What was promised and what came of it, in a few lines."""

from collections.abc import Sequence

from tidegate.sim.polling import OURS, Result

WORDS = {
    "refused": "429s came",
    "doubled": "somebody was told twice",
    "early": "somebody was told who had not paid",
    "avg_rps": "too many requests",
    "within_interval": "somebody was told too late",
}
FRUGAL = {"batch": "with few requests", "delta": "within half of the limit"}


def verdict(results: Sequence[Result]) -> list[str]:
    """For our modes; what is only compared gets no line."""
    ours = [result for result in results if result.mode in OURS]
    bad = [f"failed: {one.mode}, {one.users:,} users: {_why(one)}" for one in ours if one.flaws]
    lines = bad or [f"passed: no 429, nobody told twice{_in_time(ours)}"] * bool(ours)
    slow = [one for one in ours if one.mode == "paced" and one.within_interval not in {None, 1}]
    if slow:
        lines.append(f"paced keeps the limit, but is too slow for {_users(slow)}: use batch or delta")
    eager = [one for one in ours if one.mode == "delta" and one.reduction < 0]
    if eager:
        lines.append(
            f"delta makes more requests than asking for each would, for {_users(eager)}: it asks as often "
            "for 10 as for 10,000, and tells at once; batch makes the fewest"
        )
    return lines


def _in_time(ours: Sequence[Result]) -> str:
    modes = [(mode, how) for mode, how in FRUGAL.items() if any(one.mode == mode for one in ours)]
    return "".join(f"; {mode} told everybody in time, {how}" for mode, how in modes)


def _users(results: Sequence[Result]) -> str:
    return ", ".join(f"{one.users:,}" for one in results) + " users"


def _why(result: Result) -> str:
    return ", ".join(WORDS[flaw] for flaw in result.flaws)
