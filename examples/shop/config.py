"""The shop's settings from the environment. Tidegate reads its own: TIDEGATE_STORE and others."""

import os
import re
from pathlib import Path
from typing import NamedTuple, Self


class BadConfigError(Exception):
    """A wrong setting. The text says what to set."""


class Config(NamedTuple):
    token: str
    owner: int
    api_url: str
    texts: Path | None
    database: Path

    @classmethod
    def read(cls) -> Self:
        """Read the environment. Raises BadConfigError, without the token in its text."""
        token, owner = os.environ.get("TELEGRAM_BOT_TOKEN", ""), os.environ.get("SHOP_OWNER", "")
        if not re.fullmatch(r"\d+:[\w-]+", token):
            raise BadConfigError("set TELEGRAM_BOT_TOKEN to your bot's token, from @BotFather: 123456:ABC-…")
        if not owner.isdecimal():
            raise BadConfigError("set SHOP_OWNER to the owner's number, from @userinfobot: 1234567")
        texts = os.environ.get("SHOP_TEXTS")
        return cls(
            token=token,
            owner=int(owner),
            api_url=os.environ.get("TELEGRAM_API_URL") or "https://api.telegram.org",
            texts=Path(texts) if texts else None,
            database=Path(os.environ.get("SHOP_DATABASE") or "shop.db"),
        )
