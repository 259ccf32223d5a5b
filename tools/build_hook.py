"""Puts the example bots that the demos run, and the pages that `tidegate docs` prints, into the wheel.

An editable install finds both in the checkout.
"""

from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BOTS: Final = ("habit_bot", "payment_bot")  # of `tidegate demo habits` and `tidegate demo payment`


class BotsAndPages(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's own parameter is for its plugins
    """Hatchling makes and calls it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return
        for bot in BOTS:
            files = (Path(self.root) / "examples" / bot).glob("*.*")
            build_data["force_include"] |= {
                str(one): f"tidegate/cli/demo/examples/{bot}/{one.name}" for one in files
            }
        docs = Path(self.root) / "docs"
        build_data["force_include"] |= {
            str(page): f"tidegate/docs/{page.relative_to(docs).as_posix()}" for page in docs.rglob("*.md")
        }
