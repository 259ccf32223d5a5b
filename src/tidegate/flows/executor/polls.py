"""The pollers of a flow, one for each poll that its states name."""

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
MAX_LATEST_SUBSCRIBERS: Final = 10_000  # remembered until their poller has read them
_CONFIG_NAMES: Final = ("batch_size", "interval", "batch_check_fn")

MakePoller = Callable[..., Poller]
"""Takes the options of a poller by name: `partial(DeltaPoller, changes(table))`."""


class FlowPolls:
    """Pollers by the flow's names for them. Subscriptions are in the gate's store; pollers run with the gate.

    One session waits for a key at a time: a later subscriber replaces an earlier one.
    """

    def __init__(self, pollers: Mapping[str, Poller], stored: Callable[[str], Subscriptions]) -> None:
        self.pollers = pollers
        self._stored = stored
        self._latest: dict[tuple[str, str], SessionKey] = {}  # the latest subscriber is the last

    async def subscribe(self, poll: str, key: str, session: SessionKey, username: object) -> None:
        if poll not in self.pollers:
            return  # the flow was changed since; what the session needs now is decided anew
        self._latest.pop((poll, key), None)
        self._latest[poll, key] = session
        if len(self._latest) > MAX_LATEST_SUBSCRIBERS:
            del self._latest[next(iter(self._latest))]
        await self.pollers[poll].subscribe(key, subscription_data(session, username))

    async def unsubscribe(self, poll: str, key: str, session: SessionKey) -> None:
        """Unsubscribe, unless another session has taken the key over, as far as this process knows."""
        if self._owner(poll, key) not in {None, session}:
            return
        self._latest.pop((poll, key), None)
        if poll in self.pollers:
            await self.pollers[poll].unsubscribe(key)
        else:  # the flow had this poll when the session subscribed
            await self._stored(poll).remove([key])

    def _owner(self, poll: str, key: str) -> SessionKey | None:
        """The session that waits for the key. A poller knows new subscribers only after its next cycle."""
        if (latest := self._latest.get((poll, key))) is not None or poll not in self.pollers:
            return latest
        waiting = self.pollers[poll].subscription(key)
        return None if waiting is None else session_key_in(waiting)


def poller_name(flow: Flow, poll: str) -> str:
    """The name of a poller's subscriptions in the store."""
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
    """Raises BadInputError. A poll without a poller is left out; the flow's check names it."""
    pollers: dict[str, Poller] = {}
    make = None if config is None else _poller_maker(config, in_batches=in_batches)
    for name in poll_names(flow):
        own = given.get(name, make)
        if isinstance(own, Poller):
            pollers[name] = _adopt(own, name, notify(name), gate)
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


def _poller_maker(config: Mapping[str, Any], *, in_batches: bool) -> MakePoller:
    if unknown := [name for name in config if name not in _CONFIG_NAMES]:
        raise BadInputError(
            f"batch_polling_config has no {', '.join(unknown)}: it takes {', '.join(_CONFIG_NAMES)}"
        )
    fetch: Fetch | None = config.get("batch_check_fn")
    if not callable(fetch):
        text = (
            "batch_polling_config needs batch_check_fn: an async function of keys, which returns {key: value}"
        )
        raise BadInputError(f"{text} of those that came true")
    interval, size = config.get("interval", DEFAULT_POLL_INTERVAL), config.get("batch_size")
    BatchPoller(fetch, interval, size)  # checks the options, also if it is not used
    if in_batches:
        return lambda **options: BatchPoller(fetch, interval, size, **options)
    return lambda **options: UserPoller(_fetch_single(fetch), interval, **options)


def _fetch_single(fetch: Fetch) -> Callable[[str], Any]:
    async def fetch_one(key: str) -> object:
        keys: Sequence[str] = [key]
        return (await fetch(keys)).get(key)

    return fetch_one


def _adopt(poller: Poller, name: str, notify: Notify, gate: FlowGate) -> Poller:
    """Connect a poller that the application made to the flow."""
    if not poller.subscriptions.is_durable and gate.subscriptions(name).is_durable:
        raise BadInputError(
            f"the poller of {name} would forget who waits: give it subscriptions=gate.subscriptions(…), or"
            f" give pollers={{{name!r}: partial({type(poller).__name__}, …)}} and let the executor make it"
        )
    poller.on_news(notify)
    return poller
