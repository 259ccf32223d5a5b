"""`tidegate flow`: only the options; the work is in the neighbours."""

from typing import Annotated

import typer

from tidegate.cli.options import AsJson

app = typer.Typer(help="Check and draw conversations that are declared as flows.")

Where = Annotated[
    str,
    typer.Argument(
        metavar="FLOW",
        help="MODULE:NAME, imported from this folder, or a .toml or .json file.",
        show_default=False,
    ),
]
Svg = Annotated[
    str | None, typer.Option("--svg", metavar="FILE", help="Draw it into this file; needs mmdc on the PATH.")
]


@app.callback(invoke_without_command=True)
def flow(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    epilog="[b]Try it:[/b]  tidegate flow check shop.flows:payment  ·  tidegate flow check payment.toml"
)
def check(where: Where, *, as_json: AsJson = False) -> None:
    """Say everything that is wrong with a flow, state by state. Ends with 1 if something is.

    Finds states that nothing leads to or out of, ways to states that do not exist, triggers with two
    meanings, texts that a language lacks, and more. In a file, guards are taken for granted: they are given
    in Python.
    """
    from tidegate.cli.flow import checking  # noqa: PLC0415  (keeps --help fast)

    raise typer.Exit(checking.check(where, as_json=as_json))


@app.command(
    epilog="[b]Try it:[/b]  tidegate flow diagram shop.flows:payment  ·  tidegate flow diagram payment.toml"
)
def diagram(where: Where, *, svg: Svg = None, as_json: AsJson = False) -> None:
    """Draw a flow as a Mermaid diagram: GitHub, GitLab and many editors show it.

    Draws it as it is, also one with mistakes in it.
    """
    from tidegate.cli.flow import drawing  # noqa: PLC0415  (keeps --help fast)

    drawing.draw(where, svg=svg, as_json=as_json)
