"""The text of a message, in a line of a table. Pure."""

from collections.abc import Mapping
from typing import Any, Final

LONGEST: Final = 140  # characters
TEXTS: Final = ("text", "caption", "question", "title", "emoji", "action")


def excerpt(message: object, longest: int = LONGEST) -> str:
    """Return the beginning of what a message says, in one line; nothing if it is hidden or says nothing."""
    text = getattr(message, "text", None)
    params = getattr(message, "params", None)
    return shortened(text if isinstance(text, str) else text_in(params or {}), longest)


def text_in(params: Mapping[str, Any]) -> str:
    for name in TEXTS:
        if isinstance(text := params.get(name), str) and text:
            return text
    media = params.get("media")
    if isinstance(media, list):
        return next((one["caption"] for one in media if isinstance(one, dict) and one.get("caption")), "")
    return ""


def shortened(text: str, longest: int = LONGEST) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
