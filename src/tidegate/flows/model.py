"""What a conversation is declared with: states, and the ways that lead out of them. Values, no behaviour."""

import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.flows.events import Event

Guard = Callable[[Mapping[str, Any], "Event"], bool]
"""Pure: of the session's data and the event, whether this way is open."""
ParseMode = Literal["HTML", "MarkdownV2"]
Save = str | tuple[str, ...]
"""A name: the event's value is kept under it. Several: these fields of the value are kept."""


class FlowError(TidegateError):
    """A flow cannot go on as it is declared: a guard raised, a field is missing. The session did not move."""

    def __init__(self, text: str, *, flow: str, state: str) -> None:
        super().__init__(f"flow {flow}, state {state}: {text}")
        self.flow = flow
        self.state = state


class _Declared(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Can be written as plain data and read again."""


class Transition(_Declared, frozen=True):
    """A way: on this trigger (see `triggers`), if the guard holds, to that state. Without `to` it stays."""

    trigger: str
    to: str | None = None
    guard: str | None = None
    save: Save = ()
    say: str | None = None  # on the way, before what the next state says


class Button(_Declared, frozen=True, dict=True):
    """Has one of `to` (a state), `trigger` (of the state's own transitions) and `url`.

    Its value is `value`, or else its text as it is declared; `save` is the name to keep it under.
    """

    text: str
    to: str | None = None
    trigger: str | None = None
    url: str | None = None
    guard: str | None = None
    save: str | None = None
    value: str | None = None

    @cached_property
    def code(self) -> str:
        """Names it in what Telegram sends back: the same after a restart, as long as it means the same."""
        kept = None if self.save is None else self.worth
        meaning = msgspec.json.encode((self.to, self.trigger, self.guard, self.save, kept))
        return hashlib.blake2b(meaning, digest_size=6).hexdigest()

    @property
    def worth(self) -> str:
        return self.text if self.value is None else self.value


class Poll(_Declared, frozen=True):
    """While in the state, `data[key]` is subscribed to. The others are states to go to."""

    name: str
    key: str
    met: str
    gone: str | None = None
    reversed: str | None = None


class Timeout(_Declared, frozen=True):
    """Every so many seconds in the state it says something, up to `times`; one more, and it goes to `to`."""

    seconds: float
    to: str | None = None
    say: str | None = None
    times: int = 1


class Work(_Declared, frozen=True):
    """Begun on entering. `save`: the fields of the result that are kept."""

    name: str
    done: str
    failed: str
    save: Save = ()


class State(_Declared, frozen=True):
    """`say` and the texts of buttons are keys of the flow's texts, or texts; `{field}` is one of the data."""

    name: str
    say: str | None = None
    buttons: tuple[tuple[Button, ...], ...] = ()  # in rows
    on: tuple[Transition, ...] = ()  # the first that fits is taken
    poll: Poll | None = None
    timeout: Timeout | None = None
    run: Work | None = None
    final: bool = False
    otherwise: str | None = None  # said to what is out of place; "" is silence, None the flow's own

    def all_buttons(self) -> list[Button]:
        return [button for row in self.buttons for button in row]

    def guards(self) -> list[str]:
        """The names of all that it asks, each once."""
        asked = [way.guard for way in self.on] + [button.guard for button in self.all_buttons()]
        return [guard for guard in dict.fromkeys(asked) if guard is not None]
