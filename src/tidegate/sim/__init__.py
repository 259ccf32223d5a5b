"""The world, simulated: virtual time, and a Telegram and a NocoDB with limits that really count."""
