"""The part that the two shops share: everything but the bot library."""
