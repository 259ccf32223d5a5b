"""The pollers of a flow: one for each poll that its states name, made from what the application gave."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidegate.errors import BadInputError
from tidegate.flows.executor.lasting import LastingSubscriptions
from tidegate.flows.executor.place import Place, marked, place_in
from tidegate.flows.executor.ports import Gate
from tidegate.flows.flow import Flow
from tidegate.polling.batch import BatchPoller
from tidegate.polling.each import UserPoller
from tidegate.polling.poller import Options, Poller
from tidegate.polling.store.memory import MemorySubscriptions
from tidegate.polling.subscriptions import Fetch, Notify

INTERVAL: Final = 60.0  # seconds
_KNOWN: Final = ("batch_size", "interval", "batch_check_fn")

MakePoller = Callable[..., Poller]
"""Takes the options of a poller by name: `partial(DeltaPoller, changes(table))`."""


class Polls:
    """By the name that the flow gives them. Who waits is in the gate's store; the poller runs with the gate.

    One session waits for a key at a time: whoever subscribes to it later takes the place of who did before.
    """

    def __init__(self, pollers: Mapping[str, Poller]) -> None:
        self.pollers = pollers

    async def subscribe(self, poll: str, key: str, place: Place, username: object) -> None:
        await self.pollers[poll].subscribe(key, marked(place, username))

    async def unsubscribe(self, poll: str, key: str, place: Place) -> None:
        """Unless another session has taken the key over, as far as this process knows."""
        waiting = self.pollers[poll].waiting.get(key)
        if waiting is None or place_in(waiting) == place:
            await self.pollers[poll].unsubscribe(key)


def names_in(flow: Flow) -> list[str]:
    return list(dict.fromkeys(state.poll.name for state in flow.states if state.poll is not None))


def make_polls(
    flow: Flow,
    gate: Gate,
    notify: Callable[[str], Notify],
    *,
    config: Mapping[str, Any] | None,
    in_batches: bool,
    given: Mapping[str, Poller | MakePoller],
    restore: bool,
) -> Polls:
    """Raises BadInputError. A poll for which nothing was given has none: the flow's check names it."""
    pollers: dict[str, Poller] = {}
    make = None if config is None else _maker(config, in_batches=in_batches)
    for name in names_in(flow):
        own = given.get(name, make)
        if isinstance(own, Poller):
            pollers[name] = _adopted(own, name, notify(name), gate)
        elif own is not None:
            title = f"flow:{flow.name}:{name}"
            options = Options(
                name=title,
                notify=notify(name),
                subscriptions=LastingSubscriptions(gate, title),
                clock=gate.clock,
                restore=restore,
            )
            pollers[name] = own(**options)
    return Polls(pollers)


def _maker(config: Mapping[str, Any], *, in_batches: bool) -> MakePoller:
    if unknown := [name for name in config if name not in _KNOWN]:
        raise BadInputError(f"batch_polling_config has no {', '.join(unknown)}: it takes {', '.join(_KNOWN)}")
    fetch: Fetch | None = config.get("batch_check_fn")
    if not callable(fetch):
        text = (
            "batch_polling_config needs batch_check_fn: an async function of keys, which returns {key: value}"
        )
        raise BadInputError(f"{text} of those that came true")
    interval, size = config.get("interval", INTERVAL), config.get("batch_size")
    BatchPoller(fetch, interval, size)  # what is wrong with it is wrong either way
    if in_batches:
        return lambda **options: BatchPoller(fetch, interval, size, **options)
    return lambda **options: UserPoller(_alone(fetch), interval, **options)


def _alone(fetch: Fetch) -> Callable[[str], Any]:
    async def fetch_one(key: str) -> object:
        keys: Sequence[str] = [key]
        return (await fetch(keys)).get(key)

    return fetch_one


def _adopted(poller: Poller, name: str, notify: Notify, gate: Gate) -> Poller:
    """One that the application has made tells the flow."""
    teller = poller._teller  # noqa: SLF001  (it is made before there is anybody to be told)
    if teller._notify is not None:  # noqa: SLF001
        raise BadInputError(f"the poller of {name} has a notify of its own: leave it out, the flow is told")
    forgets = isinstance(poller._subscriptions, MemorySubscriptions)  # noqa: SLF001
    if forgets and not isinstance(gate.subscriptions(name), MemorySubscriptions):
        raise BadInputError(
            f"the poller of {name} would forget who waits: give it subscriptions=gate.subscriptions(…), or"
            f" give pollers={{{name!r}: partial({type(poller).__name__}, …)}} and let the executor make it"
        )
    teller._notify = notify  # noqa: SLF001
    return poller
