-- mooring 1: checks that keys are as they were read, then runs commands, all or none.
-- ARGV: a number that the reply repeats, the number of checks, the checks, the commands. A check is its kind, the number
-- of a key, a count, and so many words; a command has its name in place of the kind. Every key is in KEYS.
local seconds, micros = unpack(redis.call('TIME'))
local now = seconds * 1000 + math.floor(micros / 1000)
local number, checks, at = tonumber(ARGV[1]), tonumber(ARGV[2]), 3

local function step()
  local name, key, count = ARGV[at], KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
  local words = {}
  for word = 1, count do
    words[word] = ARGV[at + 2 + word]
  end
  at = at + 3 + count
  return name, key, words
end

-- An error names the command: Redis 7.0 does not say which one a user lacks.
local function run(name, ...)
  local result = redis.pcall(name, ...)
  if type(result) == 'table' and result.err then
    error({err = result.err .. ' (' .. name .. ')'})
  end
  return result
end

local function is_as_read(kind, key, words)
  if kind == 'text' then
    return run('GET', key) == (words[1] or false)
  end
  if run('HLEN', key) * 2 ~= #words then
    return false
  end
  for field = 1, #words, 2 do
    if run('HGET', key, words[field]) ~= words[field + 1] then
      return false
    end
  end
  return true
end

for _ = 1, checks do
  if not is_as_read(step()) then
    return {number, now, false}
  end
end

local results = {}
while at <= #ARGV do
  local name, key, words = step()
  if name == 'keep' then
    -- An index expires with the last of its sessions.
    if run('PTTL', key) < words[1] - now then
      run('PEXPIREAT', key, words[1])
    end
  elseif name == 'prune' then
    if run('EXISTS', key) == 0 then
      for index = 1, #words do
        run('ZREM', KEYS[tonumber(words[index])], key)
      end
    end
  else
    if name == 'ZCOUNT' or name == 'ZRANGEBYSCORE' then
      for word = 1, #words do
        if words[word] == 'now' then
          words[word] = now
        end
      end
    end
    results[#results + 1] = run(name, key, unpack(words))
  end
end
return {number, now, results}
