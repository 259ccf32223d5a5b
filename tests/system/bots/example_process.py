"""A public example of python-telegram-bot as a process of its own, as its authors start it.

    python example_process.py file url store

The token is in BOT_TOKEN. Whatever limits the environment sets, or the usual ones, are the gate's.
"""

import os
import sys
from pathlib import Path

import pytest

from system.bots.public_example import LIMITER, load
from system.bots.run_ptb import point_at


def main() -> None:
    file, url, store = sys.argv[1:]
    point_at(url, pytest.MonkeyPatch())
    load(Path(file), LIMITER, os.environ["BOT_TOKEN"], Path(store), name="__main__")


if __name__ == "__main__":
    main()
