-- Put the lock of a majority back on a node that has lost it, unless somebody holds it here.
--
-- KEYS: the lock, the index of held locks
-- ARGV: as those of acquire.lua
local value = redis.call('GET', KEYS[1])
local token = tonumber(ARGV[3])
if value then
  local owner = string.match(value, '^([^\n]*)\n', 62)
  if owner ~= '' and redis.call('PTTL', KEYS[1]) > tonumber(string.sub(value, 1, 13)) then
    return 0
  end
  token = math.max(token, tonumber(string.sub(value, 14, 29)))
end
local time = redis.call('TIME')
local head = string.format('%016.0f%016.0f', token, time[1] * 1000000 + time[2])
redis.call('SET', KEYS[1], ARGV[4] .. head .. ARGV[8] .. ARGV[1] .. '\n' .. ARGV[6] .. '\n' .. ARGV[7],
  'PX', ARGV[2])
redis.call('ZADD', KEYS[2], 0, KEYS[1])
return 1
