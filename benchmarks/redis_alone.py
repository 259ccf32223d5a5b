"""Figures of the store in Redis that have no peer, for `redis_store.py`: each verb in a process of its own.

redis_alone.py lines|wake|claims|idle|turns URL NUMBER
"""

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvloop
from benchmarks.redis_lines import lines
from benchmarks.redis_turns import turns
from benchmarks.redis_waiting import claims, idle, wake

LIFE: Final = 300  # seconds, of a process that was forgotten
VERBS: Final[dict[str, Callable[..., Any]]] = {
    each.__name__: each for each in (lines, wake, claims, idle, turns)
}

if __name__ == "__main__":
    signal.alarm(LIFE)
    print(json.dumps(uvloop.run(VERBS[sys.argv[1]](sys.argv[2], int(sys.argv[3])))))
