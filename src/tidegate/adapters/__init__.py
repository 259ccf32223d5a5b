"""What knows a bot library. Each is imported when it is asked for: a bot needs one of them, or none."""
