-- Free the name if the owner holds it, by handing it to the first who waits; withdraw its wait.
--
-- KEYS  1 the record of the name, 2 the index of its tag, 3 its queue
-- ARGV  1 owner  2 retention and 3 short grant, in ms
--
-- The first in the queue whose process lives holds the lock for a short time, in which it has to claim
-- it; its mailbox is told. See acquire.lua for what a record is.
--
-- Returns 1 when the owner held it, else 0.

local call, owner = redis.call, ARGV[1]
local record = call('GET', KEYS[1])
if not record or string.sub(record, 27, 27 + #owner) ~= owner .. '\n' then
    local base = string.sub(KEYS[2], 1, -2)
    call('LREM', KEYS[3], 0, owner)
    call('DEL', base .. 'a:' .. owner)
    return 0
end
local token, kept = string.sub(record, 2, 17), string.sub(record, 18, 26)
local lasted = 1
if call('PTTL', KEYS[1]) - kept * 1000 <= 0 then
    lasted = 0
end
if string.sub(record, 1, 1) == '+' then
    local base = string.sub(KEYS[2], 1, -2)
    call('DEL', base .. 'a:' .. owner)
    local heir = call('LPOP', KEYS[3])
    while heir do
        local home = call('GET', base .. 'a:' .. heir)
        call('DEL', base .. 'a:' .. heir)
        if home and call('EXISTS', home .. 'p') == 1 then
            local time = call('TIME')
            local drawn = math.max(tonumber(token) + 1, time[1] * 1000000 + time[2])
            local name = string.match(record, '\n[^\n]*\n', 27)
            call('SET', KEYS[1], '+' .. string.format('%016.0f', drawn) .. kept .. heir .. name,
                'PX', ARGV[3] + kept * 1000)
            call('RPUSH', home, heir)
            call('PEXPIRE', home, ARGV[3])
            return lasted
        end
        heir = call('LPOP', KEYS[3])
    end
end
-- A server whose memory is full refuses to write: then the clock alone keeps the tokens rising.
if redis.pcall('SET', KEYS[1], token, 'PX', ARGV[2]).err then
    call('DEL', KEYS[1])
end
call('SREM', KEYS[2], string.sub(KEYS[1], #KEYS[2]))
return lasted
