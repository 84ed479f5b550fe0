-- Attempt once: grant, refuse, or refuse and queue.
--
-- KEYS  1 the record of the name, 2 the index of its tag, 3 its queue
-- ARGV  1 owner  2 the name, "\n", the note  3 ttl and retention together, in ms
--       4 the retention in s, of 9 digits  5 "1" to queue, "2" to go on if still queued
--       6 presence and 7 short grant, in ms  8 the key of the claim's mailbox  9 the mode
--
-- Returns the token when granted, or {the token, the slot}; else {ms that the holder has left, its
-- note, queued or not}, and the holders' limit where that is another one than ours, 0 for none.

local call, owner, mode = redis.call, ARGV[1], ARGV[9]
local record = call('GET', KEYS[1])

if ARGV[5] ~= '2' and (not record or tonumber(record)) then
    -- Free, as most are.
    local time = call('TIME')
    local clock, last, text = time[1] * 1000000 + time[2], tonumber(record or 0), nil
    if last < clock then
        last, text = clock, time[1] .. string.sub('00000' .. time[2], -6)
    else
        last = last + 1
    end
    if not text or #text ~= 16 then  -- a clock that was never set has fewer
        text = string.format('%016.0f', last)
    end
    call('SADD', KEYS[2], string.sub(KEYS[1], #KEYS[2]))
    if mode == 'x' then
        call('SET', KEYS[1], '-' .. text .. ARGV[4] .. owner .. '\n' .. ARGV[2], 'PX', ARGV[3])
        return last
    end
    -- The first of several that may hold it: see holders.lua.
    local name, note = string.match(ARGV[2], '^([^\n]*)\n(.*)$')
    local lasts, limit = (ARGV[3] - ARGV[4] * 1000) * 1000, tonumber(mode)
    call('SET', KEYS[1], string.format('*%s%s%s\n[%d,0,[["%s",%s,%.0f,%.0f,%s,%s]]]', text, ARGV[4],
        name, limit or 0, owner, text, clock, clock + lasts, limit and '0' or 'null',
        cjson.encode(note)), 'PX', ARGV[3])
    return limit and {last, 0} or last
end

-- include holders.lua

local now = micros()
local state = read(KEYS[1], record, now, owner)
if not state then
    return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' holds no record of a lock')
end
local presence = state.base .. 'a:' .. owner
local mine, number = find(state, owner)
if ARGV[5] == '2' and not mine and call('EXISTS', presence) == 0 then
    -- Sent along with a wait, and late: whoever has withdrawn meanwhile must get nothing by it.
    return {0, '', 0}
end
local lasts = (ARGV[3] - ARGV[4] * 1000) * 1000
if mine and mine[UNTIL] <= now and state.queued then
    table.remove(state.all, number)  -- it ran out, and others wait
    mine = nil
end
if not mine and state.queued and (state.mode ~= 'x' or #state.all == 0) then
    hand_on(state, now, ARGV[7], owner, mode)
    mine = find(state, owner)
end
if not mine and fits(state, mode) and (not state.queued or call('LLEN', state.queue) == 0) then
    mine = enter(state, mode, owner, '', now, lasts)
end
local name, note = string.match(ARGV[2], '^([^\n]*)\n(.*)$')
if mine then
    -- Perhaps asked again, or what was handed over: the same token, and the whole ttl.
    mine[UNTIL], mine[NOTE], state.name = now + lasts, note, name
    if state.queued then
        call('DEL', presence)
        state.queued = call('EXISTS', state.queue) == 1
    end
    write(state, now, ARGV[4])
    local slot = tonumber(mine[SLOT])
    if slot then
        return {mine[TOKEN], slot}
    end
    return mine[TOKEN]
end

local first, other = state.all[1], is_other(state, mode)
local left = 0
for _, each in ipairs(state.all) do
    local rest = math.ceil((each[UNTIL] - now) / 1000)
    if left == 0 or tonumber(mode) and rest < left or not tonumber(mode) and rest > left then
        left = rest
    end
end
if state.changed then
    state.name = state.name or name
    write(state, now, ARGV[4])
end
if other then
    return {left, first[NOTE], 0, tonumber(state.mode) or 0}
end
local said = first and first[NOTE] or ''
if ARGV[5] == '0' then
    return {left, said, 0}
end
if call('EXISTS', presence) == 0 then
    call('LREM', state.queue, 0, owner)
    call('RPUSH', state.queue, owner)
    if not state.queued then
        call('SETRANGE', KEYS[1], 0, state.mode == 'x' and '+' or '#')
    end
end
-- A waiter asks far more often than this; those of crashed processes expire.
call('SET', presence, mode .. ':' .. ARGV[8], 'PX', 40 * ARGV[6])
call('PEXPIRE', state.queue, 40 * ARGV[6])
call('SET', ARGV[8] .. 'p', 1, 'PX', ARGV[6])
return {left, said, 1}
