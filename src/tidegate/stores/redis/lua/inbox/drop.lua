-- Drop: a parked arrival (ARGV[3], ARGV[4]: source and key) is forgotten. Replies whether there was one.

return Letter.take(ARGV[3], ARGV[4]) and 1 or 0
