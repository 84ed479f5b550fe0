-- Free the name if the owner holds it, by handing it to the first who waits; withdraw its wait.
--
-- KEYS  1 the record of the name, 2 the index of its tag, 3 its queue
-- ARGV  1 owner  2 retention, 3 short grant, both in ms  4 the name's digest
--
-- Who waits is woken by his own mailbox, holding the lock for a short time in which he has to claim
-- it. Who has no presence any more has died. See redis_acquire.lua for what a record is.
--
-- Returns 1 when the owner held it, else 0.

local owner = ARGV[1]
local record = redis.call('GET', KEYS[1])
local flag, token, kept, holder, name
if record then
    flag, token, kept, holder, name = string.match(record, '^([-+])(%d+) (%d+) ([^\n]*)\n([^\n]*)')
end
if holder ~= owner then
    local base = string.sub(KEYS[2], 1, -2)
    redis.call('LREM', KEYS[3], 0, owner)
    redis.call('DEL', base .. 'a:' .. owner, base .. 'm:' .. owner)
    return 0
end
local lasted = 1
if redis.call('PTTL', KEYS[1]) - kept <= 0 then
    lasted = 0
end
if flag == '+' then
    local base = string.sub(KEYS[2], 1, -2)
    redis.call('DEL', base .. 'a:' .. owner, base .. 'm:' .. owner)
    local heir = redis.call('LPOP', KEYS[3])
    while heir do
        local mailbox = base .. 'm:' .. heir
        if redis.call('DEL', base .. 'a:' .. heir) == 1 then
            local time = redis.call('TIME')
            local drawn = math.max(tonumber(token) + 1, time[1] * 1000000 + time[2])
            redis.call('SET', KEYS[1], string.format('+%.0f %s %s\n%s\n', drawn, kept, heir, name),
                'PX', ARGV[3] + kept)
            redis.call('RPUSH', mailbox, drawn)
            redis.call('PEXPIRE', mailbox, ARGV[3])
            return lasted
        end
        heir = redis.call('LPOP', KEYS[3])
    end
end
-- A server whose memory is full refuses to write: then the token is kept by its clock alone.
local kept_token = redis.pcall('SET', KEYS[1], token, 'PX', ARGV[2])
if kept_token.err then
    redis.call('DEL', KEYS[1])
end
redis.call('SREM', KEYS[2], ARGV[4])
return lasted
