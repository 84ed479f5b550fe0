-- Return the next held locks of the index: where to go on (empty at the end), the node's clock in us,
-- and of each holder the lock's key, what is left of the lease in ms, and the value.
--
-- KEYS: the index of held locks.  ARGV: where to go on, how many

-- include shares.lua

local keys = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
local now = micros()
local found = {'', now}
if #keys == tonumber(ARGV[2]) then
  found[1] = '(' .. keys[#keys]
end
for _, key in ipairs(keys) do
  local value = redis.call('GET', key)
  if value then
    local left = redis.call('PTTL', key) - tonumber(string.sub(value, 1, 13))
    if left > 0 and string.sub(value, 62, 62) ~= '\n' then
      found[#found + 1] = key
      found[#found + 1] = left
      found[#found + 1] = value
    end
    for _, each in ipairs(redis.call('HVALS', key .. ':shares')) do
      if ends(each) > now then
        found[#found + 1] = key
        found[#found + 1] = math.ceil((ends(each) - now) / 1000)
        found[#found + 1] = string.sub(each, UNTIL + 1)
      end
    end
  end
end
return found
