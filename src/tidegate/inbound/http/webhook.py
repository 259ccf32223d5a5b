"""`POST /webhook/telegram/{bot_id}`: an update is on disk before Telegram hears that it arrived."""

import hmac
import re
from typing import Final

from tidegate.errors import BadInputError, ClosedError, StoreError
from tidegate.inbound.http.answers import NOT_FOUND, OK, Answer, not_by, not_now
from tidegate.inbound.http.door import Door
from tidegate.inbound.http.request import Bodies, Request
from tidegate.inbound.updates import arrival_of

SECRET: Final = b"x-telegram-bot-api-secret-token"
WRONG_SECRET: Final = Answer(401, "the secret token is missing or wrong")
NO_SUCH_BOT: Final = Answer(404, "there is no such bot here")
_BOT_ID: Final = re.compile(r"[0-9]{1,19}")
_NOBODYS: Final = "0" * 64  # compared with where there is no bot, so that this takes as long


async def take_update(door: Door, bodies: Bodies, request: Request, name: str) -> Answer | None:
    if request.method != "POST":
        return not_by("POST")
    if not _BOT_ID.fullmatch(name):
        return NOT_FOUND
    try:
        door.reception()  # as long as nothing is started, nobody can tell which bots are handled here
    except ClosedError as error:
        return not_now(error)
    bot = int(name)
    secret = door.secret_of(bot)
    is_right = hmac.compare_digest((secret or _NOBODYS).encode(), request.headers.get(SECRET, b""))
    if secret is None:
        return NO_SUCH_BOT
    if not is_right:
        return WRONG_SECRET
    return await _accept(door, bodies, request, bot)


async def _accept(door: Door, bodies: Bodies, request: Request, bot: int) -> Answer | None:
    try:
        reception = door.reception()
        body = await bodies.read(request)
        if not isinstance(body, bytes):
            return body
        await reception.accept([arrival_of(bot, body)])
    except (
        BadInputError
    ) as error:  # who knows the secret and sends no update makes a mistake, and should see it
        return Answer(400, str(error))
    except (ClosedError, StoreError) as error:
        return not_now(error)
    return OK
