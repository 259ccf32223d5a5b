"""Direct calls count in the stats of every store."""

import pytest

from contract.post import BOT, Post
from tidegate.model import Delivered, NotSent, Outcome, Refused, Retry, Unknown, Unreachable

COUNTS = ("direct", "direct_refused", "direct_failed", "direct_given_up")


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [
        (Delivered(1), (1, 0, 0, 0)),
        (Refused(3), (1, 1, 0, 0)),
        (Retry(1, "server_error"), (1, 0, 1, 0)),
        (Unreachable(1, "server_error"), (1, 0, 1, 0)),
        (Unknown("timeout"), (1, 0, 0, 0)),
        (Unreachable(1, "no route"), (0, 0, 0, 0)),
        (NotSent("late"), (0, 0, 0, 0)),
        (None, (0, 0, 0, 1)),
    ],
)
async def test_direct_calls_were_in_no_number(
    post: Post, outcome: Outcome | None, counted: tuple[int, ...]
) -> None:
    post.outbox.note_call(BOT, "sendMessage", outcome, in_lane=True)
    stats = await post.outbox.stats()
    assert tuple(getattr(stats, name) for name in COUNTS) == counted


async def test_they_are_counted_once_before_and_after_they_are_stored(post: Post) -> None:
    for _ in range(3):
        post.outbox.note_call(BOT, "sendMessage", Delivered(1), in_lane=True)
    await post.clock.sleep(60)
    post.outbox.note_call(BOT, "sendMessage", Delivered(1), in_lane=True)
    assert (await post.outbox.stats()).direct == 4


async def test_a_refusal_of_a_call_that_no_limit_is_known_for_is_a_line(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    post.outbox.note_call(BOT, "getChat", Refused(4), in_lane=False)
    assert "429: bot 42:… was refused: getChat may be made again in 4 s" in caplog.messages
