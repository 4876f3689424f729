-- Drops the leases of one owner, which the caller knows to be dead: it holds the owner's own lock.
-- KEYS: 1 leases, 2 holders
-- ARGV: 1 owner
-- Returns: the shards whose leases were dropped
local dropped = {}
local holders = redis.call('HGETALL', KEYS[2])
for position = 1, #holders, 2 do
  local owner = string.match(holders[position + 1], '^%d+ (.*)$')
  if owner == ARGV[1] then
    redis.call('ZREM', KEYS[1], holders[position])
    redis.call('HDEL', KEYS[2], holders[position])
    dropped[#dropped + 1] = holders[position]
  end
end
return dropped
