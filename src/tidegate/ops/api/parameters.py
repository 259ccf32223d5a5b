"""Parameters that many routes take, with the bounds that stores have."""

from typing import Annotated, Any, Final, get_args

from fastapi import Path, Query
from pydantic import BaseModel, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from tidegate.model import ChatId
from tidegate.outbox.admission import LARGEST_ID, check_chat

LARGEST_ROW: Final = 2**63 - 1
EXAMPLE_ID: Final = "9f3a41c2d5e6-0000001b"
EXAMPLE_TIME: Final = 1_767_603_600.0
_BOT: Final = "The number of a bot, which comes before the colon of its token."
_CHAT: Final = "A number, or an @name."

BotFilter = Annotated[
    int | None, Query(ge=1, lt=LARGEST_ID, description=f"Only of this bot. {_BOT}", examples=[42])
]
BotPath = Annotated[int, Path(ge=1, lt=LARGEST_ID, description=_BOT, examples=[42])]
ChatFilter = Annotated[
    str | None, Query(max_length=64, description=f"Only of this chat. {_CHAT}", examples=["1001"])
]
ChatPath = Annotated[str, Path(min_length=1, max_length=64, description=_CHAT, examples=["1001"])]
MessagePath = Annotated[
    str,
    Path(
        min_length=1,
        max_length=100,
        description="The id of a message, as a put returned it.",
        examples=[EXAMPLE_ID],
    ),
]
ReasonFilter = Annotated[
    str | None, Query(max_length=100, description="Only with this reason.", examples=["blocked"])
]
RowPath = Annotated[int, Path(ge=1, le=LARGEST_ROW, examples=[17])]

RecordingField = Annotated[
    bool,
    Field(
        description="Whether history is recorded, as the settings of the process that answers say. With"
        " TIDEGATE_HISTORY=off nothing is added, and there is only what was recorded before."
    ),
]
BotField = Annotated[int, Field(ge=1, lt=LARGEST_ID, description=_BOT, examples=[42])]
ChatField = Annotated[int | str, Field(description=_CHAT, examples=[1001])]
Seconds = Annotated[float, Field(description="Seconds since the Unix epoch.", examples=[EXAMPLE_TIME])]


class JsonBody(BaseModel):
    """The JSON object of a request. Pydantic would take true as 1: a token would be for bot 1."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_booleans(cls, value: Any, about: ValidationInfo) -> Any:  # noqa: ANN401  (JSON)
        expected = cls.model_fields[about.field_name or ""].annotation
        if isinstance(value, bool) and bool not in {expected, *get_args(expected)}:
            raise PydanticCustomError("boolean", "true and false are not taken here")
        return value


def chat_of(text: str | None) -> ChatId | None:
    """Return the chat of a filter. Raises BadInputError."""
    return None if text is None else check_chat(text)
