-- Start the ttl anew of each name that its owner holds.
--
-- KEYS  the records, of one hash tag
-- ARGV  for each of them its owner, and the ttl in ms
--
-- Returns 1 or 0 for each of them. See acquire.lua for what a record is.

local answers = {}
for number, key in ipairs(KEYS) do
    local record = redis.call('GET', key)
    local owner = ARGV[2 * number - 1]
    answers[number] = 0
    if record and string.sub(record, 27, 27 + #owner) == owner .. '\n' then
        local kept = string.sub(record, 18, 26) * 1000
        if redis.call('PTTL', key) - kept > 0 then
            redis.call('PEXPIRE', key, ARGV[2 * number] + kept)
            answers[number] = 1
        end
    end
end
return answers
