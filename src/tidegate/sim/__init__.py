"""The world, simulated: virtual time, and a Telegram with limits that really count."""
