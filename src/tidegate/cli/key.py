"""`tidegate key`: make and change the keys that encrypt bot tokens."""

import json

import typer

from tidegate.bots.encryption import TokenCipher
from tidegate.cli import terminal
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, Store
from tidegate.cli.store import file_of, gate_at, is_redis, place_of, using_gate
from tidegate.settings import Settings

app = typer.Typer(help="Make and change the keys that encrypt bot tokens.")


@app.callback(invoke_without_command=True)
def key(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog='[b]Try it:[/b]  export TIDEGATE_KEY="$(tidegate key new)"')
def new(*, as_json: AsJson = False) -> None:
    """Print a new key for TIDEGATE_KEY. It is kept nowhere: put it where your secrets are."""
    from tidegate.bots.encryption import new_key  # noqa: PLC0415  (keeps --help fast)

    key = new_key()
    typer.echo(json.dumps({"key": key}) if as_json else key)


@app.command(epilog='[b]Try it:[/b]  TIDEGATE_KEY="$NEW,$OLD" tidegate key rotate  ·  tidegate key rotate')
def rotate(*, store: Store = None, as_json: AsJson = False) -> None:
    """Encrypt every stored token with a new key. Workers run on; killed halfway, do it again.

    With a key file beside the store, makes a new key, and drops the old ones at the end: a backup of the
    store from before needs the key file of its time. With TIDEGATE_KEY=new,old, encrypts with the first:
    afterwards take the others out.
    """
    rotate_keys(store, as_json=as_json)


def rotate_keys(store: str | None, *, as_json: bool) -> None:
    """The order is that of `Keys.rotating`: both keys count until every token is written anew."""
    gate_at(store)  # which says that there is no such store, before a key is made for it
    file = None if is_redis(place_of(store)) else file_of(store)
    keys = TokenCipher.of(Settings.read().tidegate_key, file)
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
