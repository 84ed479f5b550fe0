-- Store a greater token beside a lock that is mine. 1: it is stored, 0: the lock is not mine.
--
-- KEYS: the lock.  ARGV: owner, token

-- include shares.lua

local value = redis.call('GET', KEYS[1])
if not value then
  return 0
end
if string.match(value, '^([^\n]*)\n', 62) ~= ARGV[1] then
  local mine = share_of(KEYS[1], ARGV[1], micros())
  if not mine then
    return 0
  end
  mine = string.sub(mine, 1, TOKEN - 1) .. string.format('%016.0f', ARGV[2]) .. string.sub(mine, TOKEN + 16)
  redis.call('HSET', KEYS[1] .. ':shares', ARGV[1], mine)
elseif redis.call('PTTL', KEYS[1]) <= tonumber(string.sub(value, 1, 13)) then
  return 0
end
if tonumber(string.sub(value, 14, 29)) < tonumber(ARGV[2]) then
  redis.call('SETRANGE', KEYS[1], 13, string.format('%016.0f', ARGV[2]))
end
return 1
