-- Return of each holder what is left of the lease in ms, the node's clock in us, and the value.
--
-- KEYS: the lock

-- include shares.lua

local value = redis.call('GET', KEYS[1])
if not value then
  return {}
end
local now = micros()
local left = redis.call('PTTL', KEYS[1]) - tonumber(string.sub(value, 1, 13))
if left > 0 and string.sub(value, 62, 62) ~= '\n' then
  return {left, now, value}
end
local found = {}
for _, each in ipairs(redis.call('HVALS', KEYS[1] .. ':shares')) do
  if ends(each) > now then
    found[#found + 1] = math.ceil((ends(each) - now) / 1000)
    found[#found + 1] = now
    found[#found + 1] = string.sub(each, UNTIL + 1)
  end
end
return found
