"""Reminders: messages that are sent when it is time, in the user's own time zone."""
