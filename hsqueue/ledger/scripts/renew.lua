-- Extends a lease that is still the caller's, also one that expired and that nobody took.
-- KEYS: 1 leases, 2 holders
-- ARGV: 1 shard, 2 "<fence> <owner>", 3 time to live in ms
-- Returns: 1, or 0 where the lease is somebody else's or was given back
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
local clock = redis.call('TIME')
redis.call('ZADD', KEYS[1], clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[3], ARGV[1])
return 1
