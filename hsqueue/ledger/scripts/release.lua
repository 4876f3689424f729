-- Gives a lease back before its shard has ended.
-- KEYS: 1 leases, 2 holders
-- ARGV: 1 shard, 2 "<fence> <owner>"
-- Returns: 1, or 0 where the lease was not the caller's any more
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
