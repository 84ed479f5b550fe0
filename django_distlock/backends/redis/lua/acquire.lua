-- Attempt once: grant, refuse, or refuse and queue.
--
-- KEYS  1 the record of the name, 2 the index of its tag, 3 its queue
-- ARGV  1 owner  2 the name, "\n", the note  3 ttl and retention together, in ms
--       4 the retention in s, of 9 digits  5 "1" to queue, "2" to go on if still queued
--       6 presence and 7 short grant, in ms  8 the key of the claim's mailbox
--
-- A record is "1234567890123456" when the name is free: the last token. When it is held it is
-- "-1234567890123456000604800owner\nname\nnote": the token (16), the retention in s (9) and who holds
-- it, with "+" for "-" when others may be queued. It lives for the ttl and the retention together,
-- so that the token outlives the lease; what is left of the lease is the record's ttl less the
-- retention. Each waiter has a key "a:" that names its mailbox, a list of the owners that are next;
-- its process is alive while the key of the mailbox with "p" exists. The other keys share the
-- record's hash tag; their names begin as that of the index
-- does, and the record's own ends with the digest that the index has of it.
--
-- Returns the token when granted, else {ms that the holder has left, its note, queued or not}.

local call, owner = redis.call, ARGV[1]
local record = call('GET', KEYS[1])
local token, sign = 0, '-'

-- Write who holds the name from now on, with the next token.
local function write(to, ms, kept, words)
    local time = call('TIME')
    local clock = time[1] * 1000000 + time[2]
    local digits
    if token < clock then
        token, digits = clock, time[1] .. string.sub('00000' .. time[2], -6)
    else
        token = token + 1
    end
    if not digits or #digits ~= 16 then  -- a clock that was never set has fewer
        digits = string.format('%016.0f', token)
    end
    call('SET', KEYS[1], sign .. digits .. kept .. to .. '\n' .. words, 'PX', ms)
    return token
end

if ARGV[5] == '2' then
    -- Sent along with a wait, and late: whoever has withdrawn meanwhile must get nothing by it.
    local known = call('EXISTS', string.sub(KEYS[2], 1, -2) .. 'a:' .. owner) == 1
    if not known and not (record and string.sub(record, 27, 27 + #owner) == owner .. '\n') then
        return {0, '', 0}
    end
end
if record then
    token = tonumber(record)
end
if not token then
    local flag, last, kept =
        string.sub(record, 1, 1), string.sub(record, 2, 17), string.sub(record, 18, 26)
    token = tonumber(last)
    if not token or not tonumber(kept) or flag ~= '-' and flag ~= '+' then
        return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' holds no record of a lock')
    end
    local left = call('PTTL', KEYS[1]) - kept * 1000
    local base = string.sub(KEYS[2], 1, -2)
    if (left > 0 or flag == '-') and string.sub(record, 27, 27 + #owner) == owner .. '\n' then
        -- Asked again, or what was handed over to me: the same token, and the whole ttl.
        call('SET', KEYS[1], flag .. last .. ARGV[4] .. owner .. '\n' .. ARGV[2], 'PX', ARGV[3])
        call('SADD', KEYS[2], string.sub(KEYS[1], #KEYS[2]))
        if flag == '+' then
            call('DEL', base .. 'a:' .. owner)
        end
        return token
    end
    local name, note = string.match(record, '^[^\n]*\n([^\n]*)\n(.*)$', 27)
    if not name then
        return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' holds no record of a lock')
    end
    if left <= 0 and flag == '+' then
        -- The holder is gone, and others wait: the first of those who still live is next.
        local heir, home = call('LPOP', KEYS[3])
        while heir do
            home = call('GET', base .. 'a:' .. heir)
            call('DEL', base .. 'a:' .. heir)
            if heir == owner or home and call('EXISTS', home .. 'p') == 1 then
                break
            end
            heir = call('LPOP', KEYS[3])
        end
        if heir then
            sign = '+'
        end
        if heir and heir ~= owner then
            left, note = tonumber(ARGV[7]), ''
            write(heir, left + ARGV[4] * 1000, ARGV[4], name .. '\n')
            call('RPUSH', home, heir)
            call('PEXPIRE', home, left)
            flag = '+'
        end
    end
    if left > 0 then
        if ARGV[5] == '0' then
            return {left, note, 0}
        end
        local presence = base .. 'a:' .. owner
        if call('EXISTS', presence) == 0 then
            call('LREM', KEYS[3], 0, owner)
            call('RPUSH', KEYS[3], owner)
            if flag == '-' then
                call('SETRANGE', KEYS[1], 0, '+')
            end
        end
        -- A waiter asks far more often than this; those of crashed processes expire.
        call('SET', presence, ARGV[8], 'PX', 40 * ARGV[6])
        call('PEXPIRE', KEYS[3], 40 * ARGV[6])
        call('SET', ARGV[8] .. 'p', 1, 'PX', ARGV[6])
        return {left, note, 1}
    end
end
write(owner, ARGV[3], ARGV[4], ARGV[2])
call('SADD', KEYS[2], string.sub(KEYS[1], #KEYS[2]))
return token
