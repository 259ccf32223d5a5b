"""Resumes polling after a restart, in groups, from the store or from the data source."""

from collections.abc import AsyncIterable, Sequence

from tidegate.errors import BadInputError
from tidegate.flows.executor.executor import FlowRunner
from tidegate.flows.executor.polls import poll_names
from tidegate.flows.model import Poll
from tidegate.flows.port import session_key_in
from tidegate.polling.restorer import OnProgress, RestoreResult, StaggeredRestore, SubscriptionSource
from tidegate.polling.subscriptions import Subscription


class FlowRestorer:
    """`group` of them every `every` seconds. `bot`: whose sessions those of a source are."""

    def __init__(
        self, executor: FlowRunner, bot: int, group: int, every: float, on_progress: OnProgress | None
    ) -> None:
        self._executor = executor
        self._bot = bot
        self._group = group
        self._every = every
        self._on_progress = on_progress
        self._pace = StaggeredRestore(executor.clock, group, every, on_progress)

    async def from_store(self, state: str | None) -> RestoreResult:
        """Those for whom the poll of the state asks, in whatever state they are; None: all polls."""
        names = poll_names(self._executor.flow) if state is None else [self._poll_of(state).name]
        found = restored = already = groups = 0
        seconds = 0.0
        for name in names:
            poller = self._executor.polls.pollers[name]
            one = await poller.restore(group=self._group, every=self._every, on_progress=self._on_progress)
            found, restored, already = found + one.found, restored + one.restored, already + one.already
            seconds, groups = seconds + one.seconds, groups + one.groups
        return RestoreResult(found, restored, already, seconds, groups)

    async def from_source(self, state: str | None, source: SubscriptionSource) -> RestoreResult:
        """Those whom the source names. Who has no session any more is put into the state, without a word."""
        if state is None:
            raise BadInputError("a source says who waits, not where: give the state too, state=…")
        clock, poll = self._executor.clock, self._poll_of(state)
        begun, people = clock.monotonic(), await _read(source)
        for one in people:
            session_key_in(one, self._bot)  # before the first is restored
        returned = 0

        async def admit(group: Sequence[Subscription]) -> None:
            nonlocal returned
            for one in group:
                returned += await self._return(one, state, poll)

        groups = await self._pace.run(people, admit, lambda one: one)
        seconds = clock.monotonic() - begun
        return RestoreResult(len(people), returned, len(people) - returned, seconds, groups)

    async def _return(self, one: Subscription, state: str, poll: Poll) -> bool:
        place = session_key_in(one, self._bot)
        return await self._executor.put_into(place, state, {**one.data, poll.key: one.key})

    def _poll_of(self, state: str) -> Poll:
        declared = self._executor.flow.by_name.get(state)
        if declared is None or declared.poll is None:
            states = ", ".join(one.name for one in self._executor.flow.states if one.poll is not None)
            raise BadInputError(f"nobody waits for anything in {state}: choose from {states or 'no state'}")
        return declared.poll


async def _read(source: SubscriptionSource) -> list[Subscription]:
    """All, each once: the later one of two counts."""
    people: list[Subscription] = []
    if isinstance(source, AsyncIterable):
        people += [one async for one in source]
    else:
        people += source
    for one in people:
        if not isinstance(one, Subscription):
            kind = type(one).__name__
            raise BadInputError(f"a source of who waits yields Subscription(key, data), not {kind}")
    return list({one.key: one for one in people}.values())
