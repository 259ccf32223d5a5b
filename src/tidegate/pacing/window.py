"""A window: a limit of n calls in W seconds as n slots, each free again W seconds after its call's answer.

Telegram counts a call somewhere between our sending it and our hearing back. Take any W seconds at its
end and, among the calls counted in them, the one claimed last: every other one was then in flight or
answered less than W ago, so it held a slot, and there were at most n-1 of those. So no window at its
end ever holds more than n calls, whatever the latency.
"""

import math
from bisect import insort
from collections import Counter
from typing import Self

import msgspec

from tidegate.model import Rate
from tidegate.pacing.rules import ChatKind, Rules


class Window(msgspec.Struct, gc=False, eq=False):
    """Times are seconds of a monotonic clock and must not go back. Made by `Window.of(rate)`."""

    count: int
    seconds: float
    held: int = 0  # slots of calls in flight
    cooling: list[float] = []  # when each answered call's slot is free again, rising
    cooled: int = 0  # how many of the first ones are free by now, and not removed yet
    # Of a burst of replies: what an album takes of it at most, which leaves room for what follows. It is half
    # of the limit as it is set: what is sent while less is learned counts when that is raised. Else 0.
    part: int = 0

    @classmethod
    def of(cls, rate: Rate, *, is_burst: bool = False) -> Self:
        return cls(rate.count, rate.seconds, part=part_of_burst(rate.count) if is_burst else 0)

    @property
    def is_burst(self) -> bool:
        return self.part > 0

    @property
    def rate(self) -> Rate:
        return Rate(self.count, self.seconds)

    def free(self, now: float) -> int:
        """Slots that can be taken now; negative while an urgent call's debt lasts."""
        cooling = self.cooling
        if len(cooling) > self.cooled and cooling[self.cooled] <= now:
            self._cool(now)
        return self.count - self.taken

    @property
    def taken(self) -> int:
        """Slots of calls in flight and of those answered lately, as of the last look."""
        return self.held + len(self.cooling) - self.cooled

    def fits(self, now: float, cost: int) -> bool:
        """Return whether a call of this cost may be made now. One larger than the window needs it empty.

        Half of a burst is enough for a call of any size, which then holds that for longer.
        """
        cooling = self.cooling  # `free` inlined: this is asked twice for every call
        if len(cooling) > self.cooled and cooling[self.cooled] <= now:
            self._cool(now)
        free = self.count - self.held - len(cooling) + self.cooled
        return free >= (cost if cost == 1 else min(cost, self.largest))

    @property
    def largest(self) -> int:
        """The slots that one call takes at most."""
        return min(self.count, self.part) if self.part else self.count

    def hold_seconds(self, cost: int) -> float:
        """Seconds for which the slots of an answered call cool: a large one holds fewer for longer."""
        return self.seconds * max(1.0, cost / self.largest)

    def wait(self, now: float, cost: int = 1) -> float:
        """Seconds until the call fits if no slot is taken; infinite if an answer has to come first."""
        if self.fits(now, cost):
            return 0.0
        last = self.cooled + min(cost, self.largest) - (self.count - self.taken) - 1
        return self.cooling[last] - now if last < len(self.cooling) else math.inf

    def take(self, cost: int = 1) -> None:
        """Hold slots for a call that is about to be made, whether or not any is free."""
        self.held += cost

    def answered(self, at: float, cost: int = 1) -> None:
        """The answer came: the slots start to cool. A call larger than the window fills it for longer."""
        self.held -= cost
        cooling, free_at = self.cooling, at + self.seconds
        if cost == 1 and (not cooling or cooling[-1] <= free_at):
            cooling.append(free_at)
            return
        free_at = at + self.hold_seconds(cost)
        # It takes all slots that it costs, more than there are, too: the limit may be raised while they cool.
        for _ in range(min(cost, self.largest) if self.part else cost):
            if not cooling or cooling[-1] <= free_at:
                cooling.append(free_at)
            else:
                insort(cooling, free_at)  # an older answer that was reported later

    def give_back(self, cost: int = 1) -> None:
        """The call was never sent: its slots are free at once."""
        self.held -= cost

    def resize(self, rate: Rate) -> None:
        """Change the rate. Slots that cool already keep their time."""
        self.count, self.seconds = rate.count, rate.seconds

    def lengthen(self, rate: Rate, now: float) -> None:
        """Change to a rate of more seconds. Calls that it has forgotten may count in them: it begins full."""
        shift = rate.seconds - self.seconds
        times = [at + shift for at in self.cooling if at > now] + [now + shift] * rate.count
        self.cooling, self.cooled = sorted(times), 0
        self.resize(rate)

    def reshape(self, rate: Rate, now: float, *, memory: float, is_burst: bool = False) -> None:
        """Make it the window of another limit, which holds at once for the calls that were made before, too.

        `memory`: the seconds for which calls were remembered. In a longer window the older ones may count
        still, so it begins full. A time at which all slots get free may stand for a call larger than the
        window was: it fills the new one, whatever that has room for.
        """
        shift, all_slots = rate.seconds - memory, self.largest
        if self.is_burst:
            shift = max(0.0, shift)  # while it learned, its seconds were others
        times = [at + shift for at in self.cooling if at > now]
        if rate.count > self.count:
            large = [at for at, slots in Counter(times).items() if slots >= all_slots]
            times += [at for at in large for _ in range(rate.count)]
        if shift > 0:
            times += [now + shift] * rate.count
        self.count, self.seconds = rate.count, rate.seconds
        self.part = part_of_burst(rate.count) if is_burst else 0
        self.cooling, self.cooled = sorted(at for at in times if at > now), 0

    def fill(self, until: float) -> None:
        """Let every slot be free only then, as calls are not known that may count until then."""
        self.cooling, self.cooled = sorted([*self.cooling, *([until] * self.count)]), self.cooled

    def copy(self) -> Self:
        return msgspec.structs.replace(self, cooling=[*self.cooling])

    def idle(self, now: float) -> bool:
        """Return whether nothing is in flight and nothing cools, so that it can be forgotten."""
        return self.held == 0 and (not self.cooling or self.cooling[-1] <= now)

    def _cool(self, now: float) -> None:
        cooling, cooled = self.cooling, self.cooled
        while cooled < len(cooling) and cooling[cooled] <= now:
            cooled += 1
        if 2 * cooled > len(cooling):  # rarely, as this moves the rest of a large window
            del cooling[:cooled]
            cooled = 0
        self.cooled = cooled


def part_of_burst(count: int) -> int:
    """Return the slots that one call takes of a burst at most: in the scripts of Redis, `Window.part`."""
    return max(1, count // 2)


def chat_windows(rules: Rules) -> dict[ChatKind, tuple[Window, ...]]:
    """The empty windows of a chat, by its kind. That of replies, if they may burst, comes first."""
    replies = (Window.of(rules.replies, is_burst=True),) if rules.replies is not None else ()
    return {
        "action": tuple(map(Window.of, rules.actions)),
        "private": (*replies, Window.of(rules.private)),
        "group": (Window.of(rules.group),),
    }


def reshaped_windows(
    before: tuple[Window, ...], after: tuple[Window, ...], now: float, memory: float | None = None
) -> tuple[Window, ...]:
    """Return the windows of a chat under other rules, with the calls that they know.

    `after` are the empty windows of these rules. The average is always the last one; a window of replies
    that there was not begins with what the average knows. `memory`: of the first one, if it is another than
    its seconds.
    """
    made = []
    for place, target in enumerate(after):
        source = before[0 if place < len(after) - 1 else -1]
        window = source.copy()
        known = source.seconds if memory is None or source is not before[0] else memory
        window.reshape(target.rate, now, memory=known, is_burst=target.is_burst)
        made.append(window)
    return tuple(made)
