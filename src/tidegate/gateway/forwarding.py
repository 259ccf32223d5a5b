"""The client that the gateway needs: calls and downloads that are passed on as they are."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import aiohttp

from tidegate.delivery.bot_api import RawCall
from tidegate.delivery.transport import NoAnswer, RawAnswer


class ForwardingClient(Protocol):
    """See `BotApiClient`, which is one."""

    async def forward(
        self,
        token: str,
        call: RawCall,
        *,
        api_url: str,
        deadline: float,
        timeout: float | None = None,  # noqa: ASYNC109  (of the answer, from the last byte that was sent)
        on_left: Callable[[], None] | None = None,
    ) -> RawAnswer | NoAnswer: ...

    def download(
        self, url: str, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse | NoAnswer]: ...

    async def close(self) -> None: ...
