"""The HTTP API: messages, broadcasts, dead letters, bots, limits, reminders, jobs, history, access."""
