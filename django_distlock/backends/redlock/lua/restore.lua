-- Put the lock of a majority back on a node that has lost it, unless somebody holds it here.
--
-- KEYS: the lock, the index of held locks
-- ARGV: as those of acquire.lua

-- include shares.lua

local value = redis.call('GET', KEYS[1])
local now = micros()
local token = tonumber(ARGV[3])
if value then
  local owner = string.match(value, '^([^\n]*)\n', 62)
  if owner ~= '' and redis.call('PTTL', KEYS[1]) > tonumber(string.sub(value, 1, 13)) then
    return 0
  end
  if ARGV[9] ~= 's' and longest(KEYS[1], now) > 0 then
    return 0
  end
  token = math.max(token, tonumber(string.sub(value, 14, 29)))
end
local head = string.format('%016.0f%016.0f', token, now)
local text = ARGV[4] .. head .. ARGV[8] .. ARGV[1] .. '\n' .. ARGV[6] .. '\n' .. ARGV[7]
if ARGV[9] == 's' then
  free(KEYS[1], text, ARGV[2])
  share(KEYS[1], ARGV[1], text, now, ARGV[2] - ARGV[4])
else
  redis.call('SET', KEYS[1], text, 'PX', ARGV[2])
end
redis.call('ZADD', KEYS[2], 0, KEYS[1])
return 1
