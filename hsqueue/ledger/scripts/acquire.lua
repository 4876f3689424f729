-- Grants the lease of one shard, with a new fencing token. Behind pace.lua.
-- KEYS: 1 info, 2 ended, 3 leases, 4 holders, 5 attempts, 6 fence, 7 queued, 8 pace, 9 sent
-- ARGV: 1 shard, 2 owner, 3 time to live in ms
-- Returns: {'granted', fence, attempts} | {'ended'} | {'held', holder} | {'unknown'}
-- 'unknown' means that this Redis lost the run; its ledger has to be rebuilt before anything is leased.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return {'unknown'} end
if redis.call('GETBIT', KEYS[2], ARGV[1]) == 1 then return {'ended'} end
local now = redis_ms()
local expiry = redis.call('ZSCORE', KEYS[3], ARGV[1])
if expiry and tonumber(expiry) > now then
  return {'held', redis.call('HGET', KEYS[4], ARGV[1]) or ''}
end
local fence = string.format('%.0f', epoch * 4294967296 + redis.call('INCR', KEYS[6]))
redis.call('ZADD', KEYS[3], now + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], fence .. ' ' .. ARGV[2])
redis.call('ZREM', KEYS[7], ARGV[1])
redis.call('SETBIT', KEYS[9], ARGV[1], 0)
begin_pace(KEYS[8], now)
return {'granted', fence, redis.call('HINCRBY', KEYS[5], ARGV[1], 1)}
