"""`tidegate key`: the keys that encrypt bot tokens. Only the options; the work is in key_rotation."""

import json

import typer

from tidegate.cli.options import AsJson, Store

app = typer.Typer(help="Make and change the keys that encrypt bot tokens.")


@app.callback(invoke_without_command=True)
def key(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog='[b]Try it:[/b]  export TIDEGATE_KEY="$(tidegate key new)"')
def new(*, as_json: AsJson = False) -> None:
    """Print a new key for TIDEGATE_KEY. It is kept nowhere: put it where your secrets are."""
    from tidegate.keys import new_key  # noqa: PLC0415  (keeps --help fast)

    key = new_key()
    typer.echo(json.dumps({"key": key}) if as_json else key)


@app.command(epilog='[b]Try it:[/b]  TIDEGATE_KEY="$NEW,$OLD" tidegate key rotate  ·  tidegate key rotate')
def rotate(*, store: Store = None, as_json: AsJson = False) -> None:
    """Encrypt every stored token with a new key. Workers run on; killed halfway, do it again.

    With a key file beside the store, makes a new key, and drops the old ones at the end: a backup of the
    store from before needs the key file of its time. With TIDEGATE_KEY=new,old, encrypts with the first:
    afterwards take the others out.
    """
    from tidegate.cli.keys import rotation as key_rotation  # noqa: PLC0415  (keeps --help fast)

    key_rotation.rotate(store, as_json=as_json)
