"""The Lua scripts: each step is one file, with the files that its stage shares before it."""

import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

# The order in which Lua has to read them.
_PACING: Final = ("window", "learned")
_OUTBOX_SHARED: Final = (
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
OUTBOX_STEPS: Final = (
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
OUTBOX_KEYS: Final = (
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


def load_outbox_scripts() -> dict[str, Script]:
    """All steps by name."""
    lua = files("tidegate.stores.redis") / "lua"
    ours, pacing = lua / "outbox", lua / "shared"
    shared = [(pacing / f"{name}.lua").read_text() for name in _PACING]
    shared += [(ours / "shared" / f"{name}.lua").read_text() for name in _OUTBOX_SHARED]
    scripts = {}
    for step in OUTBOX_STEPS:
        own = (ours / f"{step}.lua").read_text()
        source = "\n".join([f"local STEP = '{step}'", *shared, own])
        scripts[step] = Script(source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324  (Redis's choice)
    return scripts
