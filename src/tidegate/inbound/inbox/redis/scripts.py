"""The Lua scripts: each step is one, made of what all of them share and of its own file."""

import hashlib
from importlib.resources import files
from typing import Final

from tidegate.outbox.redis.link import Link
from tidegate.outbox.redis.scripts import Script

_SHARED: Final = ("step", "lanes", "letters")  # in the order in which Lua has to read them
STEPS: Final = (
    "accept",
    "claim",
    "done",
    "release",
    "take_back",
    "renew",
    "park",
    "parked",
    "replay",
    "drop",
    "stats",
    "lease",
    "give_back",
)
CHANNEL: Final = "inbox:channel"
# In the order in which the scripts take them. The first is the outbox's, which notes a restart of Redis.
KEYS: Final = (
    "meta",
    "inbox:meta",
    "inbox:bodies",
    "inbox:queue",
    "inbox:ready",
    "inbox:suspects",
    "inbox:later",
    "inbox:leases",
    "inbox:held",
    "inbox:tries",
    "inbox:parked",
    "inbox:letters",
    "inbox:letters_of",
    "inbox:reasons",
    CHANNEL,
)


def load() -> dict[str, Script]:
    """All steps by name."""
    ours = files("tidegate.inbound.inbox.redis") / "lua"
    shared = [(ours / "shared" / f"{name}.lua").read_text() for name in _SHARED]
    scripts = {}
    for step in STEPS:
        source = "\n".join([f"local STEP = '{step}'", *shared, (ours / f"{step}.lua").read_text()])
        scripts[step] = Script(source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324  (Redis's choice)
    return scripts


def keys_of(link: Link) -> list[str]:
    return [link.key(name) for name in KEYS]
