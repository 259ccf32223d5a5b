"""The pollers of a flow: one for each poll that its states name, made from what the application gave."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidegate.errors import BadInputError
from tidegate.flows.flow import Flow
from tidegate.flows.port import FlowGate, SessionKey, session_key_in, subscription_data
from tidegate.polling.batch import BatchPoller
from tidegate.polling.per_user import UserPoller
from tidegate.polling.poller import Poller, PollerOptions
from tidegate.polling.subscriptions import Fetch, Notify, Subscriptions

DEFAULT_POLL_INTERVAL: Final = 60.0  # seconds
MAX_LATEST_SUBSCRIBERS: Final = 10_000  # subscribers known by heart, until their poller has read them
_KNOWN: Final = ("batch_size", "interval", "batch_check_fn")

MakePoller = Callable[..., Poller]
"""Takes the options of a poller by name: `partial(DeltaPoller, changes(table))`."""


class FlowPolls:
    """By the name that the flow gives them. Who waits is in the gate's store; the poller runs with the gate.

    One session waits for a key at a time: whoever subscribes to it later takes the place of who did before.
    """

    def __init__(self, pollers: Mapping[str, Poller], kept: Callable[[str], Subscriptions]) -> None:
        self.pollers = pollers
        self._kept = kept
        self._latest: dict[tuple[str, str], SessionKey] = {}  # who subscribed, the latest last

    @property
    def kept(self) -> list[Subscriptions]:
        """Where it is kept who waits."""
        return [poller.subscriptions for poller in self.pollers.values()]

    async def subscribe(self, poll: str, key: str, place: SessionKey, username: object) -> None:
        if poll not in self.pollers:
            return  # decided before the flow was changed; what the session needs by now is decided anew
        self._latest.pop((poll, key), None)
        self._latest[poll, key] = place
        if len(self._latest) > MAX_LATEST_SUBSCRIBERS:
            del self._latest[next(iter(self._latest))]
        await self.pollers[poll].subscribe(key, subscription_data(place, username))

    async def unsubscribe(self, poll: str, key: str, place: SessionKey) -> None:
        """Unless another session has taken the key over, as far as this process knows."""
        if self._owner(poll, key) not in {None, place}:
            return
        self._latest.pop((poll, key), None)
        if poll in self.pollers:
            await self.pollers[poll].unsubscribe(key)
        else:  # the flow had it when the session subscribed
            await self._kept(poll).remove([key])

    def _owner(self, poll: str, key: str) -> SessionKey | None:
        """A poller reads who has subscribed when it looks next, and restores those from before one by one."""
        if (latest := self._latest.get((poll, key))) is not None or poll not in self.pollers:
            return latest
        waiting = self.pollers[poll].subscription(key)
        return None if waiting is None else session_key_in(waiting)


def poller_name(flow: Flow, poll: str) -> str:
    """The name under which it is kept who waits."""
    return f"flow:{flow.name}:{poll}"


def poll_names(flow: Flow) -> list[str]:
    return list(dict.fromkeys(state.poll.name for state in flow.states if state.poll is not None))


def make_polls(
    flow: Flow,
    gate: FlowGate,
    notify: Callable[[str], Notify],
    *,
    config: Mapping[str, Any] | None,
    in_batches: bool,
    given: Mapping[str, Poller | MakePoller],
    restore: bool,
) -> FlowPolls:
    """Raises BadInputError. A poll for which nothing was given has none: the flow's check names it."""
    pollers: dict[str, Poller] = {}
    make = None if config is None else _maker(config, in_batches=in_batches)
    for name in poll_names(flow):
        own = given.get(name, make)
        if isinstance(own, Poller):
            pollers[name] = _adopted(own, name, notify(name), gate)
        elif own is not None:
            title = poller_name(flow, name)
            options = PollerOptions(
                name=title,
                notify=notify(name),
                subscriptions=gate.subscriptions(title),
                clock=gate.clock,
                restore=restore,
            )
            pollers[name] = own(**options)
    return FlowPolls(pollers, lambda name: gate.subscriptions(poller_name(flow, name)))


def _maker(config: Mapping[str, Any], *, in_batches: bool) -> MakePoller:
    if unknown := [name for name in config if name not in _KNOWN]:
        raise BadInputError(f"batch_polling_config has no {', '.join(unknown)}: it takes {', '.join(_KNOWN)}")
    fetch: Fetch | None = config.get("batch_check_fn")
    if not callable(fetch):
        text = (
            "batch_polling_config needs batch_check_fn: an async function of keys, which returns {key: value}"
        )
        raise BadInputError(f"{text} of those that came true")
    interval, size = config.get("interval", DEFAULT_POLL_INTERVAL), config.get("batch_size")
    BatchPoller(fetch, interval, size)  # what is wrong with it is wrong either way
    if in_batches:
        return lambda **options: BatchPoller(fetch, interval, size, **options)
    return lambda **options: UserPoller(_alone(fetch), interval, **options)


def _alone(fetch: Fetch) -> Callable[[str], Any]:
    async def fetch_one(key: str) -> object:
        keys: Sequence[str] = [key]
        return (await fetch(keys)).get(key)

    return fetch_one


def _adopted(poller: Poller, name: str, notify: Notify, gate: FlowGate) -> Poller:
    """One that the application has made tells the flow."""
    if not poller.subscriptions.is_durable and gate.subscriptions(name).is_durable:
        raise BadInputError(
            f"the poller of {name} would forget who waits: give it subscriptions=gate.subscriptions(…), or"
            f" give pollers={{{name!r}: partial({type(poller).__name__}, …)}} and let the executor make it"
        )
    poller.on_news(notify)
    return poller
