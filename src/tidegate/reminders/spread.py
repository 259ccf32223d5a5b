"""When an occurrence is due: spread over a window, and moved out of quiet hours. Pure."""

import datetime as dt
import struct
from typing import Final, assert_never

from tidegate.reminders.occurrences import time_zone
from tidegate.reminders.reminder import QuietHours, Spread

ENGAGEMENT_BANDS: Final = 10
_64_BITS: Final = 2**64 - 1
_AS_BITS: Final = struct.Struct("<d")


def due_time(
    occurrence: float,
    *,
    reminder_id: int,
    zone: str,
    spread: Spread | None = None,
    engagement: float = 0.0,
    quiet: QuietHours | None = None,
) -> float:
    """Return when an occurrence is due. The same arguments always give the same time.

    Whatever falls into quiet hours is spread over the same window from their end on, not due all at once.
    """
    offset = 0.0 if spread is None else spread_offset(spread, reminder_id, occurrence, engagement)
    if quiet is None:
        return occurrence + offset
    due = end_of_quiet(occurrence, quiet, zone) + offset
    if (end := end_of_quiet(due, quiet, zone)) == due:
        return due
    return end_of_quiet(end + offset, quiet, zone)


def spread_offset(spread: Spread, reminder_id: int, occurrence: float, engagement: float = 0.0) -> float:
    """Return seconds, from 0 to less than the length of the window.

    By engagement: users are sorted into tenths, the most engaged ones first, and spread by their id within
    their tenth of the window.
    """
    match spread.order:
        case "stable":
            share = _fraction(reminder_id)
        case "random":
            share = _fraction(spread.seed, reminder_id, int.from_bytes(_AS_BITS.pack(occurrence), "little"))
        case "engagement":
            band = min(ENGAGEMENT_BANDS - 1, int(min(1.0, max(0.0, 1.0 - engagement)) * ENGAGEMENT_BANDS))
            share = (band + _fraction(reminder_id)) / ENGAGEMENT_BANDS
        case _:
            assert_never(spread.order)
    return share * spread.seconds


def _fraction(*numbers: int) -> float:
    """Return a number from 0 to below 1 that looks random, and is the same for the same numbers.

    The mixer of SplitMix64 (Steele, Lea, Flood 2014): numbers in a row are spread evenly, and so are those
    that have a digit in common, such as the reminders of one shard.
    """
    mixed = 0
    for number in numbers:
        mixed = (mixed ^ number) + 0x9E3779B97F4A7C15 & _64_BITS
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _64_BITS
        mixed ^= mixed >> 31
    return (mixed >> 32) / 2**32


def end_of_quiet(at: float, quiet: QuietHours, zone: str) -> float:
    """Return the end of the quiet hours in which an instant is; the instant itself if it is in none.

    If the clocks skip the end, it is later by as much. If they show it twice, it is the first one that is
    still to come.
    """
    if quiet.start == quiet.end:
        return at
    tz = time_zone(zone)
    while _is_quiet((local := dt.datetime.fromtimestamp(at, tz)).time(), quiet):
        date = local.date() + dt.timedelta(days=quiet.end <= local.time())
        end = dt.datetime.combine(date, quiet.end, tz)
        first, second = end.replace(fold=0).timestamp(), end.replace(fold=1).timestamp()
        at = first if first > at else second
    return at


def _is_quiet(local: dt.time, quiet: QuietHours) -> bool:
    if quiet.start < quiet.end:
        return quiet.start <= local < quiet.end
    return local >= quiet.start or local < quiet.end
