"""What stands behind a button and comes back when it is pressed: the flow, the visit and the button."""

from typing import Final, NamedTuple

LONGEST_DATA: Final = 64  # bytes, https://core.telegram.org/bots/api#inlinekeyboardbutton
_PREFIX: Final = "f"


class Pressed(NamedTuple):
    flow: str
    visit: int
    button: str


def press_data(flow: str, visit: int, button: str) -> str:
    return f"{_PREFIX}:{flow}:{visit}:{button}"


def read_press(data: str) -> Pressed | None:
    """None: no flow has written this."""
    match data.split(":"):
        case [prefix, flow, visit, button] if prefix == _PREFIX and visit.isdecimal() and visit.isascii():
            return Pressed(flow, int(visit), button)
        case _:
            return None
