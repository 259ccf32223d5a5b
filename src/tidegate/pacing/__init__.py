"""When a call may be made: windows, buckets, rules and learned limits. Pure arithmetic."""
