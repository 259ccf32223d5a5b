"""The store in a file: one machine, any number of producers, one sender at a time. Accepted means on disk."""
