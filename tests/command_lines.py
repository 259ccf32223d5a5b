"""The command lines of Tidegate that documents and files of deploy/ show, checked without running them."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from typer.main import get_command

from tidegate.cli.app import tidegate

_BLOCK: Final = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_INLINE: Final = re.compile(r"`(tidegate [^`]+)`")
_WRAPPED: Final = re.compile(r"\\\n\s*")
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")
_REST: Final = re.compile(r" [<>&].*|[0-9]>.*")  # redirections
_SEPARATOR: Final = re.compile(r"\|\||&&|[|;()]|\$\(")
# What may stand before the arguments: variables, sudo, a container that runs Tidegate.
_START: Final = re.compile(
    r"^(?:\$ )?(?:sudo (?:-\w+ \w+ |--\S+ )*)?(?:\w+=\S* +)*"
    r"(?:(?:\S*/)?tidegate(?= |$)|docker run (?:-\S+ )*tidegate:\S+"
    r"|docker compose run (?:-e \S+ |-\S+ )*(?:api|worker|scheduler)"
    r"|docker compose exec (?:-\S+ )*(?:api|worker|scheduler) tidegate)\b(.*)$"
)
_PLACEHOLDER: Final = re.compile(r"[A-Z][A-Z_]*|\$\S+")


class ShownCommand(NamedTuple):
    """`is_mention`: it stands in a sentence, which may leave out what the command needs."""

    arguments: tuple[str, ...]
    is_mention: bool = False


def shown_commands(page: str) -> Iterator[ShownCommand]:
    """Yield each command line of a Markdown page: in blocks for a shell, and in sentences."""
    for language, block in _BLOCK.findall(page):
        if language in {"sh", "bash", "console"}:
            for line in _WRAPPED.sub(" ", block).splitlines():
                yield from map(ShownCommand, _commands_of(_COMMENT.sub("", line).strip()))
    for inline in _INLINE.findall(_BLOCK.sub("", page).replace("\n", " ")):
        yield from (ShownCommand(arguments, is_mention=True) for arguments in _commands_of(inline))


def _commands_of(line: str) -> Iterator[tuple[str, ...]]:
    for part in _SEPARATOR.split(line):
        halved = part.count('"') % 2  # of "$(tidegate key new)"
        found = _START.match(_REST.sub("", part.strip().strip('"' if halved else "")))
        if found is not None:
            words = shlex.split(found[1].replace("…", ""))
            yield tuple("1" if _PLACEHOLDER.fullmatch(word) else word for word in words)


def parse(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse a command line and return its parameters; nothing runs. Raises TyperException if it is wrong."""
    context: Any = get_command(tidegate).make_context("tidegate", list(arguments))
    while True:
        rest = [*getattr(context, "_protected_args", []), *context.args]
        if not rest or not hasattr(context.command, "resolve_command"):
            return dict(context.params)
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
