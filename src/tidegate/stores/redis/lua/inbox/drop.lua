-- Drop: a parked update (ARGV[3], ARGV[4]: source and key) is forgotten. Replies whether there was one.

return Parked.take(ARGV[3], ARGV[4]) and 1 or 0
