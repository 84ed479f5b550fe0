-- Take names off an index that nobody has held for some time.
--
-- KEYS  1 the index, then the records of the names
-- ARGV  1 ms since the end of a lease  then the names' digests
--
-- Returns how many were taken off. See acquire.lua for what a record is.

local removed = 0
for number = 2, #KEYS do
    local record = redis.call('GET', KEYS[number])
    local kept
    if record then
        kept = tonumber(string.sub(record, 18, 26))
    end
    if not kept or redis.call('PTTL', KEYS[number]) - kept * 1000 <= -tonumber(ARGV[1]) then
        removed = removed + redis.call('SREM', KEYS[1], ARGV[number])
    end
end
return removed
