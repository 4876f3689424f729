-- Put before acquire.lua and commit.lua. The pace of a run is one hash, of bounded size:
--   began     ms of Redis' clock when the first lease of this ledger was granted
--   resumed   ms when work began, or went on after more than five minutes without
--   last      ms of the newest commit that recorded something
--   worked    ms from began to last, without such pauses
--   tokens    committed since began
--   0 to 59   "<bucket> <tokens>": committed within ten seconds; a bucket is ms / 10000, its place bucket % 60
local PAUSE = 300000

local function redis_ms()
  local clock = redis.call('TIME')
  return clock[1] * 1000 + math.floor(clock[2] / 1000)
end

-- Returns since when the work goes on that is under way now.
local function begin_pace(pace, now)
  local marks = redis.call('HMGET', pace, 'last', 'resumed')
  local since = math.max(tonumber(marks[1] or 0), tonumber(marks[2] or 0))
  if now - since <= PAUSE then return since end
  redis.call('HSETNX', pace, 'began', now)
  redis.call('HSET', pace, 'resumed', now)
  return now
end

local function note_pace(pace, now, tokens)
  local worked = now - begin_pace(pace, now)
  if worked > 0 then redis.call('HINCRBY', pace, 'worked', worked) end
  redis.call('HSET', pace, 'last', now)
  if tokens == 0 then return end
  redis.call('HINCRBY', pace, 'tokens', tokens)
  local bucket = math.floor(now / 10000)
  local place, mark = bucket % 60, string.format('%d ', bucket)
  local before = redis.call('HGET', pace, place)
  if before and string.sub(before, 1, #mark) == mark then tokens = tokens + string.sub(before, #mark + 1) end
  redis.call('HSET', pace, place, mark .. string.format('%.0f', tokens))
end
