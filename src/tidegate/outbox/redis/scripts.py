"""The Lua scripts: each step is one, made of what all of them share and of its own file."""

import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

# The order in which Lua has to read them.
_PACING: Final = ("window", "learned")
_SHARED: Final = (
    "store",
    "timers",
    "lanes",
    "lines",
    "shares",
    "flood",
    "schedule",
    "messages",
    "step",
)
STEPS: Final = (
    "open",
    "put",
    "claim",
    "settle",
    "extend",
    "cool",
    "turn",
    "end_turn",
    "cancel",
    "pause",
    "replay",
    "drop",
    "forget",
    "look",
    "letters",
    "scan",
    "stats",
    "wait_for",
    "why",
    "live",
)
# In the order in which the scripts take them. All of a partition are in one slot of a cluster.
KEYS: Final = (
    "meta",
    "counts",
    "messages",
    "turns",
    "lanes",
    "pools",
    "bots",
    "queue",
    "ready",
    "timers",
    "leases",
    "active",
    "resting",
    "ended",
    "letters",
    "dedup",
    "coalesce",
    "aliases",
    "learned",
    "wake",
    "channel",
    "processes",
    "claimed",
)


class Script(NamedTuple):
    source: str
    sha: str  # by which Redis knows it


def load() -> dict[str, Script]:
    """All steps by name."""
    ours, pacing = files("tidegate.outbox.redis") / "lua", files("tidegate.pacing.redis")
    shared = [(pacing / f"{name}.lua").read_text() for name in _PACING]
    shared += [(ours / "shared" / f"{name}.lua").read_text() for name in _SHARED]
    scripts = {}
    for step in STEPS:
        own = (ours / f"{step}.lua").read_text()
        source = "\n".join([f"local STEP = '{step}'", *shared, own])
        scripts[step] = Script(source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324  (Redis's choice)
    return scripts
