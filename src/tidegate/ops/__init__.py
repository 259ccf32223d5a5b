"""Watching a process from within: its event loop, its memory, its errors; reports to Sentry."""
