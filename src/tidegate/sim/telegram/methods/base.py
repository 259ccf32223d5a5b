"""What a method is, and the limits that several of them hold to."""

from collections.abc import Callable
from typing import Any

from tidegate.sim.telegram.call import Call

Methods = dict[str, Callable[[Call], Any]]

MAX_TEXT = 4096
MAX_CAPTION = 1024
# What makes a message what it is, and goes along when it is copied or forwarded.
CONTENT = (
    "text",
    "photo",
    "document",
    "video",
    "animation",
    "audio",
    "voice",
    "video_note",
    "sticker",
    "location",
    "venue",
    "contact",
    "dice",
    "poll",
    "caption",
    "entities",
    "caption_entities",
)
