"""Where a gateway listens."""

import pytest

from tidegate.cli.gateway import listen_address
from tidegate.errors import BadInputError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8081", "127.0.0.1", 8081),
        (" localhost:0 ", "localhost", 0),
        ("[::1]:8081", "::1", 8081),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    place = listen_address(text)

    assert (place.host, place.port) == (host, port)


@pytest.mark.parametrize(
    "text", ["", "8081", "127.0.0.1", "127.0.0.1:", "::1:8081", "h:x", "h:65536", "h:-1"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInputError, match=r"write it as 127\.0\.0\.1:8081"):
        listen_address(text)
