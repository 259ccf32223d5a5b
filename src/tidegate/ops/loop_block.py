"""A block of the event loop, and what is said of it. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from tidegate.call_stack import StackReading
from tidegate.incidents import Incident

MAIN_SHARE: Final = 0.5  # of a block: whatever takes so much of it is its cause
SHARE_WORTH_SAYING: Final = 0.2  # of a block
MANY_STEPS: Final = 3  # different callbacks among the samples


class GcPause(msgspec.Struct, frozen=True):
    """A garbage collection: no thread runs meanwhile. Times are monotonic."""

    began: float
    ended: float
    generation: int


class LoopBlock(msgspec.Struct, kw_only=True):
    """A time in which the loop did not run what was due. Times are in seconds."""

    seconds: float
    samples: Sequence[StackReading] = ()  # of the loop's thread, taken one after another; empty: it waits
    overslept: float = 0.0  # how much later than it wanted the watching thread ran
    cpu: float = 0.0  # that the process used meanwhile
    loop_cpu: float | None = None  # of which the thread of the loop; None: not known
    collections: Sequence[GcPause] = ()
    other: StackReading | None = None  # another thread, seen while the loop was ready to run
    is_over: bool = True

    @property
    def without_cpu(self) -> float:
        """Seconds in which no thread of the process ran, though the watching thread was due."""
        return min(self.seconds, max(0.0, self.overslept - self.cpu))

    @property
    def kept_by_others(self) -> float:
        """Seconds in which other threads ran and let neither the loop nor the watching thread run."""
        return 0.0 if self.loop_cpu is None else min(self.overslept, self.cpu - self.loop_cpu)


def describe_block(block: LoopBlock) -> Incident:
    """Name what blocked the loop: the collector, the machine, another thread, or a line of a callback."""
    collected = sum(one.ended - one.began for one in block.collections)
    if collected > MAIN_SHARE * block.seconds:
        generation = max(one.generation for one in block.collections)
        return _incident(block, f"garbage collection, generation {generation}", "by")
    if block.without_cpu > MAIN_SHARE * block.seconds:
        return _incident(block, "a machine that gave the process no CPU: it is busy, or was suspended", "by")
    seen = [sample for sample in block.samples if sample.place is not None]
    if len(seen) * 2 < len(block.samples) or block.kept_by_others > MAIN_SHARE * block.seconds:
        return _incident(block, _other_thread(block.other), "by")
    if not seen:
        return _incident(block, "a place that was not seen", "at")
    return _named(block, seen)


def spoken(seconds: float) -> str:
    """Two digits are enough: 0.15 s, 2.1 s, 42 s."""
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"  # noqa: PLR2004


def _named(block: LoopBlock, seen: Sequence[StackReading]) -> Incident:
    [(most, _)] = Counter((sample.place, sample.call) for sample in seen).most_common(1)
    sample = [one for one in seen if (one.place, one.call) == most][-1]
    steps = Counter(one.step for one in seen)
    is_split = len(steps) >= MANY_STEPS and max(steps.values()) * 2 <= len(seen)
    handler = f", handler {sample.handler}" if sample.handler else ""
    if not handler and sample.outer not in {None, sample.function}:
        handler = f", called from {sample.outer}"
    chat = f", chat {sample.chat}" if sample.chat is not None else ""
    starved = ""
    if block.without_cpu > SHARE_WORTH_SAYING * block.seconds:
        starved = f", of which the process had no CPU for {spoken(block.without_cpu)}"
    where = f"by many short steps, most often {sample.where}" if is_split else sample.where
    return Incident(
        kind="loop_blocked",
        text=f"loop blocked {_length(block)} {where}{handler}{chat}{starved}",
        group=f"loop_blocked {sample.place}",
        seconds=block.seconds,
        place=sample.place,
        handler=sample.handler,
        chat=sample.chat,
        stack=sample.lines,
    )


def _incident(block: LoopBlock, cause: str, preposition: str) -> Incident:
    return Incident(
        kind="loop_blocked",
        text=f"loop blocked {_length(block)} {preposition} {cause}",
        group=f"loop_blocked {cause}",
        seconds=block.seconds,
        stack=block.samples[-1].lines if block.samples else (),
    )


def _length(block: LoopBlock) -> str:
    return spoken(block.seconds) if block.is_over else f"{spoken(block.seconds)} so far, and still"


def _other_thread(other: StackReading | None) -> str:
    text = "another thread that keeps the interpreter lock"
    return text if other is None or other.place is None else f"{text}, perhaps {other.where}"
