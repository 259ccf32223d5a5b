"""Which Tidegate this is, and what runs it."""

import platform
from importlib.metadata import version


def versions() -> dict[str, str]:
    return {"version": version("tidegate"), "python": platform.python_version()}


def line() -> str:
    known = versions()
    return f"tidegate {known['version']} (Python {known['python']})"
