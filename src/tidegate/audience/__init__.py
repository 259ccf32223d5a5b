"""Whom a broadcast goes to and what each of them reads, from a file, checked before anything is sent."""
