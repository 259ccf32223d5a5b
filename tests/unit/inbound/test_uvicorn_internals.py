"""What the webhook server takes from inside uvicorn: a version that changes it fails here, not at night."""

import inspect

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.h11_impl import RequestResponseCycle as H11Cycle
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle as HttpToolsCycle

from tidegate.inbound.server import UVICORN_NO_HTTP, BoundedHeadProtocol, CoalescingTransport

CHANGED = "uvicorn has changed inside: adapt inbound/server.py, then the range of versions in pyproject.toml"


@pytest.mark.parametrize("method", ["capture_signals", "handle_exit", "startup", "shutdown"])
def test_the_server_has_the_methods_that_are_overridden(method: str) -> None:
    assert hasattr(uvicorn.Server, method), CHANGED


def test_the_methods_of_the_server_are_called_as_we_expect() -> None:
    assert list(inspect.signature(uvicorn.Server.startup).parameters) == ["self", "sockets"], CHANGED
    assert list(inspect.signature(uvicorn.Server.handle_exit).parameters) == ["self", "sig", "frame"], CHANGED
    server = uvicorn.Server(uvicorn.Config(app="none", log_config=None))
    assert (server.started, server.force_exit) == (False, False), CHANGED
    assert "if not self.force_exit:\n            await self.lifespan.shutdown()" in inspect.getsource(
        uvicorn.Server.shutdown
    ), CHANGED
    assert "self.capture_signals()" in inspect.getsource(uvicorn.Server.serve), CHANGED
    assert "self.startup(" in inspect.getsource(uvicorn.Server), CHANGED


@pytest.mark.parametrize("protocol", [HttpToolsProtocol, H11Protocol])
def test_a_protocol_keeps_its_transport_and_its_request_where_we_look(protocol: type) -> None:
    source = inspect.getsource(protocol)
    assert "self.transport = transport" in source, CHANGED
    assert "self.cycle" in source, CHANGED
    assert "self.app = config.loaded_app" in source, CHANGED
    assert "self.connections = server_state.connections" in source, CHANGED
    assert "self.tasks = server_state.tasks" in source, CHANGED
    callbacks = {"connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing"}
    assert callbacks <= vars(protocol).keys(), CHANGED


@pytest.mark.parametrize("cycle", [HttpToolsCycle, H11Cycle])
def test_a_request_knows_whether_its_response_is_complete(cycle: type) -> None:
    assert "self.response_complete" in inspect.getsource(cycle), CHANGED


def test_httptools_is_told_of_by_the_protocol_that_we_extend() -> None:
    callbacks = {"on_message_begin", "on_headers_complete", "on_body", "on_message_complete"}
    assert callbacks <= vars(HttpToolsProtocol).keys(), CHANGED
    assert callbacks <= vars(BoundedHeadProtocol).keys()
    for protocol in (HttpToolsProtocol, H11Protocol):
        assert list(inspect.signature(protocol.send_400_response).parameters) == ["self", "msg"], CHANGED
        assert f'"{UVICORN_NO_HTTP}"' in inspect.getsource(protocol), CHANGED
    assert "scope=self.scope" in inspect.getsource(HttpToolsProtocol.on_headers_complete), CHANGED
    assert "HttpRequestParser(self)" in inspect.getsource(HttpToolsProtocol), CHANGED


def test_writes_of_a_response_go_through_the_transport_that_we_wrap() -> None:
    for cycle in (HttpToolsCycle, H11Cycle):
        assert "self.transport.write(" in inspect.getsource(cycle.send), CHANGED
    # Its flow control asks the transport that it was given: an attribute that we pass through.
    assert HIGH_WATER_LIMIT > 0
    assert hasattr(CoalescingTransport, "__getattr__")
