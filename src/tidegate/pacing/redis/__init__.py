"""Windows and learned limits in Lua: what `pacing.window` and `pacing.learned` say, inside Redis."""
