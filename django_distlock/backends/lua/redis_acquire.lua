-- Attempt once: grant, refuse, or refuse and queue.
--
-- KEYS  1 the record of the name, 2 the index of its tag, 3 its queue
-- ARGV  1 owner  2 ttl, 3 retention, 4 presence, 5 short grant, all in ms
--       6 the name's digest  7 the name  8 the note  9 "1" to queue
--
-- A record is "1234567890123456" when the name is free: the last token. When it is held it is
-- "-1234567890123456 604800000 owner\nname\nnote": the token, the retention and who holds it, with
-- "+" for "-" when others may be queued. It lives for the ttl and the retention together, so that
-- the token outlives the lease, and what is left of the lease is the record's ttl less the retention.
-- The other keys share the record's hash tag; their names begin as that of the index does.
--
-- Returns the token when granted, else {ms that the holder has left, its note, queued or not}.

local owner, retention = ARGV[1], tonumber(ARGV[3])
local record = redis.call('GET', KEYS[1])
local base = string.sub(KEYS[2], 1, -2)
local flag, token, kept, holder, name, note

local function grant(to, ms, sign, n, words)
    local time = redis.call('TIME')
    local clock = time[1] * 1000000 + time[2]
    local drawn = math.max((tonumber(token) or 0) + 1, clock)
    local text = string.format('%s%.0f %.0f %s\n%s\n%s', sign, drawn, retention, to, n, words)
    redis.call('SET', KEYS[1], text, 'PX', ms + retention)
    redis.call('SADD', KEYS[2], ARGV[6])
    return drawn
end

local sign = '-'
if record then
    flag, token, kept, holder, name, note =
        string.match(record, '^([-+])(%d+) (%d+) ([^\n]*)\n([^\n]*)\n(.*)$')
    if not flag then
        token = string.match(record, '^%d+$')
    end
end
if flag then
    local left = redis.call('PTTL', KEYS[1]) - kept
    if holder == owner and (left > 0 or flag == '-') then
        -- Asked again, or what was handed over to me: the same token, and the whole ttl.
        redis.call('SET', KEYS[1], string.format('%s%s %.0f %s\n%s\n%s', flag, token, retention,
            owner, ARGV[7], ARGV[8]), 'PX', ARGV[2] + retention)
        redis.call('SADD', KEYS[2], ARGV[6])
        if flag == '+' then
            redis.call('DEL', base .. 'a:' .. owner, base .. 'm:' .. owner)
        end
        return tonumber(token)
    end
    if left <= 0 and flag == '+' then
        -- The holder is gone, and others wait: the first of those who still live is next.
        local heir = redis.call('LINDEX', KEYS[3], 0)
        while heir and heir ~= owner and redis.call('EXISTS', base .. 'a:' .. heir) == 0 do
            redis.call('LPOP', KEYS[3])
            heir = redis.call('LINDEX', KEYS[3], 0)
        end
        if heir then
            sign = '+'
            redis.call('LPOP', KEYS[3])
            redis.call('DEL', base .. 'a:' .. heir, base .. 'm:' .. heir)
            if heir ~= owner then
                token = grant(heir, tonumber(ARGV[5]), sign, name, '')
                redis.call('RPUSH', base .. 'm:' .. heir, token)
                redis.call('PEXPIRE', base .. 'm:' .. heir, ARGV[5])
                flag, left, note = '+', tonumber(ARGV[5]), ''
            end
        end
    end
    if left > 0 then
        local queued = 0
        if ARGV[9] == '1' then
            local presence = base .. 'a:' .. owner
            if redis.call('EXISTS', presence) == 0 then
                redis.call('LREM', KEYS[3], 0, owner)
                redis.call('RPUSH', KEYS[3], owner)
                if flag == '-' then
                    redis.call('SETRANGE', KEYS[1], 0, '+')
                end
            end
            redis.call('SET', presence, 1, 'PX', ARGV[4])
            redis.call('PEXPIRE', KEYS[3], 20 * ARGV[4])
            queued = 1
        end
        return {left, note, queued}
    end
end
return grant(owner, tonumber(ARGV[2]), sign, ARGV[7], ARGV[8])
