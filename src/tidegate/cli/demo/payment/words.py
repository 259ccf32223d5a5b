"""What the bot says when an order has ended, word for word."""

from tidegate.flows import Flow
from tidegate.flows.filling import fill

LANGUAGE = "en"  # of all who are simulated


class Words:
    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def confirmation(self, order: str) -> str:
        return self._say("confirmed", order)

    def cancellation(self, order: str) -> str:
        return self._say("cancelled", order)

    def _say(self, state: str, order: str) -> str:
        said = self._flow.by_name[state].say or ""
        return fill(self._flow.text(said, LANGUAGE), {"order_id": order}, self._flow.parse_mode)
