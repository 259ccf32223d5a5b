"""The service of the tests of the API, which serves the dashboard, too."""

from unit.ops.api.conftest import service

__all__ = ["service"]
