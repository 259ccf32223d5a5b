"""What the two shops have in common: everything but the bot library."""
