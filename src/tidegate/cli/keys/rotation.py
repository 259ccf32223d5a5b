"""`tidegate key rotate`."""

from tidegate.cli import terminal
from tidegate.cli.gates import gate_at
from tidegate.cli.places import file_of, is_redis, place_of
from tidegate.cli.selection import amount
from tidegate.cli.stores import using_gate
from tidegate.keys import Keys
from tidegate.settings import Settings


def rotate(store: str | None, *, as_json: bool) -> None:
    """The order is that of `Keys.rotating`: both keys count until every token is written anew."""
    gate_at(store)  # which says that there is no such store, before a key is made for it
    file = None if is_redis(place_of(store)) else file_of(store)
    keys = Keys.of(Settings.read().tidegate_key, file)
    with keys.rotating() as place:
        count = using_gate(store, lambda gate: gate.rotate_tokens())
    if as_json:
        terminal.put_json({"rotated": count, "key": place})
    elif count:
        terminal.put_line(f"{amount(count, 'token is', 'tokens are')} encrypted with {_newest(place)}")
    else:
        terminal.put_line("No token is stored: there was nothing to encrypt anew")


def _newest(place: str) -> str:
    if place == "TIDEGATE_KEY":
        return "the first key of TIDEGATE_KEY: take the others out, in every place that sets it"
    return f"the key in {place}, and no older one is left there"
