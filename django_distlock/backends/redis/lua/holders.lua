-- Who holds a name, and who is next: what the other scripts include, after what is done for most
-- names, which need none of it.
--
-- A record is "1234567890123456" when the name is free: the last token. When one holds it alone it
-- is "-1234567890123456000604800owner\nname\nnote": the token (16), the retention in s (9) and who
-- holds it, with "+" for "-" when others may be queued. When several hold it, it is
-- "*1234567890123456000604800name\n" and JSON: [the limit or 0, 0, [["owner", token, since, until,
-- slot, note], ...]], times in microseconds, with "#" for "*" when others may be queued. It lives
-- until the last lease ends, and for the retention after that, so that the token outlives the lease;
-- what is left of the lease is the record's ttl less the retention.
--
-- Each waiter has a key "a:" with its mode, ":" and its mailbox, a list of the owners that are next;
-- its process is alive while the key of the mailbox with "p" exists. A mode is "x" for who wants to
-- be alone, "s" for who shares, or the limit. The other keys share the record's hash tag; their names
-- begin as that of the index does, and the record's own ends with the digest that the index has of it.

local call = redis.call

-- The fields of a holder.
local OWNER, TOKEN, SINCE, UNTIL, SLOT, NOTE = 1, 2, 3, 4, 5, 6

local function micros()
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
end

-- Read the state of a name, nil where that is none of ours. What ran out is left out, but for who
-- held it alone and is `asker`.
local function read(key, record, now, asker)
    local base = string.sub(key, 1, -28)
    local state = {key = key, base = base, queue = base .. 'q:' .. string.sub(key, -27)}
    state.all, state.token, state.queued = {}, tonumber(record or 0), false
    if state.token then
        return state
    end
    local flag = string.sub(record, 1, 1)
    state.token, state.kept = tonumber(string.sub(record, 2, 17)), string.sub(record, 18, 26)
    if not state.token or not tonumber(state.kept) then
        return nil
    end
    if flag == '*' or flag == '#' then
        local name, text = string.match(record, '^([^\n]*)\n(.*)$', 27)
        local raw = cjson.decode(text)
        state.name, state.queued = name, flag == '#'
        state.mode = raw[1] == 0 and 's' or tostring(raw[1])
        for _, each in ipairs(raw[3]) do
            for field = TOKEN, UNTIL do
                each[field] = tonumber(each[field])
            end
            if each[UNTIL] > now then
                state.all[#state.all + 1] = each
            end
        end
        return state
    end
    local owner, name, note = string.match(record, '^([^\n]*)\n([^\n]*)\n(.*)$', 27)
    if not owner or flag ~= '-' and flag ~= '+' then
        return nil
    end
    state.name, state.queued, state.mode = name, flag == '+', 'x'
    local left = call('PTTL', key) - state.kept * 1000
    if left > 0 or owner == asker then
        state.all[1] = {owner, state.token, now, now + left * 1000, cjson.null, note}
    end
    return state
end

local function find(state, owner)
    for number, each in ipairs(state.all) do
        if each[OWNER] == owner then
            return each, number
        end
    end
end

-- Whether the mode is of another kind than the holders': then no wait helps.
local function is_other(state, mode)
    if #state.all == 0 or mode == state.mode then
        return false
    end
    return tonumber(mode) or tonumber(state.mode)
end

local function fits(state, mode)
    if #state.all == 0 then
        return true
    end
    return mode == state.mode and mode ~= 'x' and (mode == 's' or #state.all < tonumber(mode))
end

-- Let one more hold it, with the next token.
local function enter(state, mode, owner, note, now, lasts)
    state.token = math.max(state.token + 1, now)
    state.mode = mode
    local slot = cjson.null
    if tonumber(mode) then
        local taken = {}
        for _, each in ipairs(state.all) do
            taken[tonumber(each[SLOT])] = true
        end
        slot = 0
        while taken[slot] do
            slot = slot + 1
        end
    end
    local new = {owner, state.token, now, now + lasts, slot, note}
    state.all[#state.all + 1] = new
    return new
end

-- Let those hold it, for a short time of `grant` ms in which they have to claim it, who are the first
-- in the queue, whose processes live, and whom the holders let in. `asker` is alive in any case.
local function hand_on(state, now, grant, asker, mode)
    local heir = call('LINDEX', state.queue, 0)
    while heir do
        local told = call('GET', state.base .. 'a:' .. heir)
        local wanted, home = string.match(told or '', '^(%w+):(.*)$')
        if heir == asker then
            wanted, home = mode, nil
        elseif home and call('EXISTS', home .. 'p') == 0 then
            wanted = nil
        end
        local other = wanted and is_other(state, wanted)
        if wanted and not other and not fits(state, wanted) then
            return
        end
        call('LPOP', state.queue)
        call('DEL', state.base .. 'a:' .. heir)
        if wanted then
            state.changed = true
            if not other then
                enter(state, wanted, heir, '', now, grant * 1000)
            end
            if home then
                call('RPUSH', home, heir)
                call('PEXPIRE', home, grant)
            end
        end
        heir = call('LINDEX', state.queue, 0)
    end
end

local function digits(number)
    return string.format('%016.0f', number)
end

-- Write who holds it; `kept` is the retention as it stands in a record.
local function write(state, now, kept)
    local index, name = state.base .. 'i', string.sub(state.key, -27)
    if #state.all == 0 then
        -- A server whose memory is full refuses to write: then the clock alone keeps tokens rising.
        if redis.pcall('SET', state.key, digits(state.token), 'PX', kept * 1000).err then
            call('DEL', state.key)
        end
        call('SREM', index, name)
        return
    end
    local head, ends, record = digits(state.token) .. kept, 0, nil
    for _, each in ipairs(state.all) do
        ends = math.max(ends, each[UNTIL])
    end
    if state.mode == 'x' then
        local one = state.all[1]
        record = (state.queued and '+' or '-') .. head
        record = record .. one[OWNER] .. '\n' .. state.name .. '\n' .. one[NOTE]
    else
        local rows = {}
        for number, each in ipairs(state.all) do
            -- As text: cjson writes 14 digits.
            rows[number] = {each[OWNER], digits(each[TOKEN]), digits(each[SINCE]), digits(each[UNTIL]),
                each[SLOT], each[NOTE]}
        end
        local limit = tonumber(state.mode) or 0
        record = (state.queued and '#' or '*') .. head .. state.name .. '\n' .. cjson.encode({limit, 0, rows})
    end
    call('SET', state.key, record, 'PX', math.ceil((ends - now) / 1000) + kept * 1000)
    call('SADD', index, name)
end
