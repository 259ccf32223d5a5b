"""The rate-limited APIs behind a bot: one client for each API and token."""
