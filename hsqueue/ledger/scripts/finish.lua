-- Marks a shard as ended, after its manifest is written, and drops its lease.
-- KEYS: 1 leases, 2 holders, 3 ended, 4 queued, 5 attempts, 6 work, 7 sent
-- ARGV: 1 shard, 2 "<fence> <owner>"
-- Returns: 1, or 0 where the lease is not the caller's
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('SETBIT', KEYS[3], ARGV[1], 1)
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('SETBIT', KEYS[7], ARGV[1], 0)
redis.call('HDEL', KEYS[5], ARGV[1])
redis.call('HDEL', KEYS[6], ARGV[1])
return 1
