"""A limit, inferred from the calls that were accepted and the wait that a refusal asked for."""

from collections.abc import Sequence

from tidegate.model import Rate


def infer_limit(accepted: Sequence[float], refused_at: float, retry_after: float) -> Rate | None:
    """Return the limit that a burst from idle has met; None if no whole number of seconds explains it.

    `accepted` are the times of the calls before the refusal. Of n calls in W seconds, Telegram asks to wait
    until the oldest of the last n is W seconds old, rounded up to whole seconds: so W lies within a second,
    and its whole number is the answer. A window of 2.5 s is found as 3 s: slower than need be.
    """
    for count in range(1, len(accepted) + 1):
        longest = refused_at - accepted[-count] + retry_after
        seconds = int(longest)
        together = [accepted[i + count] - accepted[i] for i in range(len(accepted) - count)]
        # More than `count` within the window were accepted before: then it is not this limit.
        if seconds > longest - 1 and seconds >= 1 and all(apart >= seconds for apart in together):
            return Rate(count, seconds)
    return None
