-- Start the ttl anew of each name that its owner holds.
--
-- KEYS  the records, of one hash tag
-- ARGV  for each of them its owner, and the ttl in ms
--
-- Returns 1 or 0 for each of them. See redis_acquire.lua for what a record is.

local answers = {}
for number, key in ipairs(KEYS) do
    local record = redis.call('GET', key)
    local kept, holder
    if record then
        kept, holder = string.match(record, '^[-+]%d+ (%d+) ([^\n]*)')
    end
    answers[number] = 0
    if holder == ARGV[2 * number - 1] and redis.call('PTTL', key) - kept > 0 then
        redis.call('PEXPIRE', key, ARGV[2 * number] + kept)
        answers[number] = 1
    end
end
return answers
