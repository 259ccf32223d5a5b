"""`tidegate key`: make and rotate the keys that encrypt bot tokens."""

from tidegate.bots.encryption import TokenCipher, new_key
from tidegate.cli import terminal
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, Store, command_group
from tidegate.cli.store import file_of, gate_for, is_redis, store_name, using_gate
from tidegate.settings import Settings

app = command_group("Make and rotate the keys that encrypt bot tokens.")


@app.command(epilog='[b]Try it:[/b]  export TIDEGATE_KEY="$(tidegate key new)"')
def new(*, as_json: AsJson = False) -> None:
    """Print a new key for TIDEGATE_KEY. It is stored nowhere: keep it with your secrets."""
    key = new_key()
    terminal.report({"key": key}, key, as_json=as_json)


@app.command(epilog='[b]Try it:[/b]  TIDEGATE_KEY="$NEW,$OLD" tidegate key rotate  ·  tidegate key rotate')
def rotate(*, store: Store = None, as_json: AsJson = False) -> None:
    """Encrypt every stored token with a new key. Workers may run meanwhile; if it is killed, run it again.

    With a key file beside the store, makes a new key and drops the old ones at the end: an older backup of
    the store needs the key file of its time. With TIDEGATE_KEY=new,old, encrypts with the first key:
    remove the others afterwards.
    """
    gate_for(store)  # raises if there is no such store, before a key is made for it
    file = None if is_redis(store_name(store)) else file_of(store)
    # Both keys are valid until every token is encrypted with the new one.
    with TokenCipher.of(Settings.read().tidegate_key, file).rotating() as place:
        count = using_gate(store, lambda gate: gate.rotate_tokens())
    line = f"{amount(count, 'token is', 'tokens are')} encrypted with {_newest(place)}"
    nothing = "No token is stored: there was nothing to encrypt"
    terminal.report({"rotated": count, "key": place}, line if count else nothing, as_json=as_json)


def _newest(place: str) -> str:
    if place == "TIDEGATE_KEY":
        return "the first key of TIDEGATE_KEY: remove the others wherever it is set"
    return f"the key in {place}, which holds no older one any more"
