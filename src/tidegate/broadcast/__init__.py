"""One message, or one for each, to an audience of any size: fed into the outbox a little at a time."""
