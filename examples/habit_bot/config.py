"""The bot's settings from the environment. Tidegate reads its own, such as DATABASE_URL."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from tidegate import BadInputError

TELEGRAM = "https://api.telegram.org"


class Config(NamedTuple):
    token: str
    api_url: str = TELEGRAM
    texts: Path | None = None

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the environment. Raises BadInputError, without the token in its text."""
        found = os.environ if environment is None else environment
        token, texts = found.get("TELEGRAM_BOT_TOKEN", ""), found.get("HABITS_TEXTS")
        if not re.fullmatch(r"\d+:[\w-]+", token):
            raise BadInputError("set TELEGRAM_BOT_TOKEN to your bot's token, from @BotFather: 123456:ABC-…")
        return cls(token, found.get("TELEGRAM_API_URL") or TELEGRAM, Path(texts) if texts else None)
