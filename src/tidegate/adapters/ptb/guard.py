"""The throttle of an application that is equipped: there while the gate is open."""

from typing import Any

from telegram.ext import Application, BaseHandler

from tidegate.adapters.gate import Gate
from tidegate.adapters.ptb.throttling import AFTER_FOLLOWER, throttle_application
from tidegate.inbound.throttle.rules import ThrottleRules

App = Application[Any, Any, Any, Any, Any, Any]


class Guard:
    """`rules`: the gate's usual ones, if there are none."""

    def __init__(self, application: App, gate: Gate, rules: ThrottleRules | None) -> None:
        self._application = application
        self._gate = gate
        self._rules = rules
        self._handler: BaseHandler[Any, Any, Any] | None = None

    def begin(self) -> None:
        """The gate is open. It counts in its store, which is another one each time."""
        if self._application.handlers.get(AFTER_FOLLOWER):
            return  # somebody has given it a throttle
        throttle_application(self._application, self._gate.throttle(self._rules), self._gate.tell)
        self._handler = self._application.handlers[AFTER_FOLLOWER][-1]

    def end(self) -> None:
        if self._handler is not None:
            self._application.remove_handler(self._handler, AFTER_FOLLOWER)
            self._handler = None
