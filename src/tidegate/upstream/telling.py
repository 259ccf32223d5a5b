"""Each request is counted, logged and told to whoever listens."""

import logging
from typing import Any, Final

import msgspec

from tidegate.upstream.exchange import Exchange, Hook
from tidegate.upstream.totals import Totals
from tidegate.upstream.wire import NoResponse, Response

log = logging.getLogger("tidegate.upstream")


class _Listed(msgspec.Struct):
    list: list[msgspec.Raw]


_count_in: Final = msgspec.json.Decoder(list[msgspec.Raw] | _Listed).decode


def records_in(outcome: Response | NoResponse) -> int | None:
    """How many records an answer lists; None if it is not a list."""
    if isinstance(outcome, NoResponse) or not outcome.body.startswith((b"[", b"{")):
        return None
    try:
        found = _count_in(outcome.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return len(found.list if isinstance(found, _Listed) else found)


class Telling:
    """A hook that raises is logged and harms nobody else."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._hooks: list[Hook] = []

    @property
    def in_detail(self) -> bool:
        """Whether somebody listens, so that counting records is worth its time."""
        return bool(self._hooks) or log.isEnabledFor(logging.DEBUG)

    def add(self, hook: Hook) -> None:
        self._hooks.append(hook)

    def tell(self, exchange: Exchange) -> None:
        self._totals.count(exchange)
        _log(exchange)
        for hook in self._hooks:
            try:
                hook(exchange)
            except Exception:
                log.exception("a hook of %s raised; the request is not touched by that", exchange.api)


def _log(exchange: Exchange) -> None:
    level = logging.DEBUG if exchange.ok else logging.INFO
    if not log.isEnabledFor(level):
        return
    said: dict[str, Any] = {name: getattr(exchange, name) for name in exchange.__struct_fields__}
    log.log(
        level,
        "%s: %s %s: %s in %.3f s",
        exchange.api,
        exchange.method,
        exchange.endpoint,
        exchange.status if exchange.status is not None else exchange.reason,
        exchange.seconds,
        extra={"exchange": said},
    )
