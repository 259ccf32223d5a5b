"""The workshops and their reports: a real bot asks a service here."""

from typing import Any, Final

from tidegate import WorkContext

STREETS: Final = ("Mill Lane", "Station Road", "High Street", "Park Way", "Quay", "Church Hill", "North Gate")


class Workshops:
    """Reports by the key of their work, so that one that is repeated after a crash is not made twice."""

    def __init__(self) -> None:
        self.reports: dict[str, dict[str, Any]] = {}

    async def find_workshops(self, _: WorkContext) -> dict[str, Any]:
        found = [{"workshop": f"Workshop {number}", "street": at} for number, at in enumerate(STREETS, 1)]
        return {"workshops": found}

    async def report(self, work: WorkContext) -> dict[str, str]:
        report = self.reports.setdefault(work.key, {**work.data, "ticket": f"R-{len(self.reports) + 1}"})
        return {"ticket": report["ticket"]}

    def work(self) -> dict[str, Any]:
        """The functions by the names that the flow has for them."""
        return {"find_workshops": self.find_workshops, "report": self.report}
