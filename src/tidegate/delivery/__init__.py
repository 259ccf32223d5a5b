"""Delivery: messages are claimed, sent, judged by their answers, and settled."""
