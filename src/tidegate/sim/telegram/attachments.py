"""Files as they stand in a message."""

from collections.abc import Mapping
from typing import Any, Final

from tidegate.sim.telegram.reading import to_int
from tidegate.sim.telegram.residents import File, Json

LARGEST_MEASURE = 2**31
_SIZE: Final = {"width": 640, "height": 480}
# What is said of a file of each kind beside its ids, with the value where the sender gives none.
_MEASURES: Final[dict[str, dict[str, int]]] = {
    "video": _SIZE | {"duration": 0},
    "animation": _SIZE | {"duration": 0},
    "audio": {"duration": 0},
    "voice": {"duration": 0},
    "video_note": {"duration": 0, "length": 240},
}
_TEXTS: Final[dict[str, tuple[str, ...]]] = {"audio": ("performer", "title"), "sticker": ("emoji",)}
_STICKER: Final = {"type": "regular", "width": 512, "height": 512, "is_animated": False, "is_video": False}
_NAMED: Final = frozenset(("document", "video", "animation", "audio"))


def part(file: File, kind: str, said: Mapping[str, Any]) -> Json:
    """What a message holds for a file; `said` is what its sender gave beside it."""
    if kind == "photo":
        return {"photo": [about(file) | _SIZE]}
    described = about(file) | {
        name: _measure(said.get(name), usual) for name, usual in _MEASURES.get(kind, {}).items()
    }
    described |= {name: said[name] for name in _TEXTS.get(kind, ()) if isinstance(said.get(name), str)}
    if kind == "sticker":
        return {kind: described | _STICKER}
    if kind != "video_note":
        described["mime_type"] = file.mime
    if kind in _NAMED:
        described["file_name"] = file.name
    # An animation is a document too, for those who know no animations.
    return {kind: described} | (part(file, "document", said) if kind == "animation" else {})


def about(file: File) -> Json:
    return {"file_id": file.id, "file_unique_id": f"U{file.id}", "file_size": len(file.content)}


def _measure(value: object, usual: int) -> int:
    number = to_int(value) if isinstance(value, str) else value
    return number if isinstance(number, int) and 0 <= number < LARGEST_MEASURE else usual
