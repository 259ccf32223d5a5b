"""Pacing: windows, buckets, rules and learned limits decide when a call may be made. Pure arithmetic."""
