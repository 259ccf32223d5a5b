"""The names of `tidegate.sim`: importable, and listed on the simulator's page."""

import re
from pathlib import Path

from tidegate import sim
from tidegate.sim import virtual_time

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "simulator.md"


def test_every_name_is_on_the_simulators_page() -> None:
    section = PAGE.read_text("utf-8").partition("## Names in `tidegate.sim`")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(sim.__all__) - {"virtual"}


def test_every_name_can_be_imported_and_earlier_spellings_still_work() -> None:
    assert all(getattr(sim, name) is not None for name in sim.__all__)
    assert sim.virtual is virtual_time
    from tidegate.sim.nocodb import NocoDb  # noqa: PLC0415
    from tidegate.sim.telegram import Telegram  # noqa: PLC0415

    assert (Telegram, NocoDb) == (sim.SimulatedTelegram, sim.SimulatedNocoDb)
