"""A poll and the votes in it. No time, no updates: who is told is decided elsewhere."""

from typing import Any

from tidegate.errors import BadInputError

Json = dict[str, Any]


class Ballot:
    """`poll` is as Telegram shows it, new after each change: whoever was given the old one keeps it."""

    def __init__(self, poll: Json, place: tuple[int, int]) -> None:
        self.poll = poll
        self.place = place  # chat and message
        self._votes: dict[int, tuple[int, ...]] = {}

    def vote(self, user_id: int, options: tuple[int, ...]) -> None:
        """Choose options by their place, from 0; none takes a vote back. BadInputError where Telegram's apps
        offer no such choice.
        """
        poll = self.poll
        if poll["is_closed"]:
            raise BadInputError("the poll is closed")
        if any(option not in range(len(poll["options"])) for option in options):
            raise BadInputError(f"the poll has {len(poll['options'])} options, numbered from 0")
        if len(options) > 1 and not poll["allows_multiple_answers"]:
            raise BadInputError("the poll takes one answer only")
        if user_id in self._votes and not poll["allows_revoting"]:
            raise BadInputError(f"user {user_id} has answered already")
        self._votes.pop(user_id, None)
        if options:
            self._votes[user_id] = options
        self._count()

    def close(self) -> None:
        self.poll = self.poll | {"is_closed": True}

    def _count(self) -> None:
        votes = [option for options in self._votes.values() for option in options]
        counted = [
            option | {"voter_count": votes.count(place)} for place, option in enumerate(self.poll["options"])
        ]
        self.poll = self.poll | {"options": counted, "total_voter_count": len(self._votes)}
