"""What comes in over HTTP: updates, signed events, and whether we are well. A bare ASGI application."""
