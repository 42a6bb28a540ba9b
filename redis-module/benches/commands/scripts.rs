//! The steps of a session as Lua scripts: each makes the transition of one command of the module, and its complete
//! reply.

/// The transition of CREATE and its complete reply, without the bindings of a tombstone, which do not occur in the
/// benchmarks.
pub(crate) const CREATE: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local fields, flat = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
local ttl, created, changed, state, began, used, ends = tonumber(ARGV[3]), 0, 0, nil, nil, nil, nil
local generation, epoch, id, hash
if fields.p then
  if fields.p ~= ARGV[2] then return redis.error_reply('DENIED') end
  generation, epoch, id, hash = string.match(fields.id, '^(%d+) (%d+) (%S+) ?(%S*)$')
  if id ~= ARGV[1] then return redis.error_reply('ERR') end
  local reader, kept
  reader, state, began, used, ends, kept = string.match(fields.s, '^%d+ (%d+) (%a+) (%d+) (%d+) (%d+) (%d+)$')
  if reader ~= '1' then return redis.error_reply('ERR') end
  if state == 'active' and now >= tonumber(ends) then state = 'expired' end
  if hash ~= ARGV[4] then changed = 1 end
end
local revived = state ~= 'active' and state
if state ~= 'active' then
  created, changed, state = 1, 0, 'active'
  generation = string.format('%d', generation and tonumber(generation) + 1 or now * 1000)
  if fields.s then redis.call('DEL', KEYS[1]) end
  began = string.format('%d', now)
  used, ends = began, string.format('%d', now + ttl + math.floor(ttl / 16))
  hash, fields = ARGV[4], {['l:init'] = ARGV[5]}
  redis.call('HSET', KEYS[1], 's', '1 1 active ' .. began .. ' ' .. used .. ' ' .. ends .. ' ' .. ARGV[3],
    'p', ARGV[2], 'id', generation .. ' ' .. (epoch or '0') .. ' ' .. ARGV[1] .. ' ' .. hash, 'l:init', ARGV[5])
  redis.call('PEXPIREAT', KEYS[1], string.format('%d', now + ttl * 2))
elseif now >= tonumber(used) + ttl / 16 then
  used, ends = string.format('%d', now), string.format('%d', now + ttl + math.floor(ttl / 16))
  redis.call('HSET', KEYS[1], 's', '1 1 active ' .. began .. ' ' .. used .. ' ' .. ends .. ' ' .. ARGV[3])
  redis.call('PEXPIREAT', KEYS[1], string.format('%d', now + ttl * 2))
end
if created == 1 and not revived then
  return {'created', 1, 'gen', tonumber(generation), 'created_at', tonumber(began), 'expires_at', now + ttl}
end
local labels = {}
for name, value in pairs(fields) do
  if string.sub(name, 1, 2) == 'l:' then
    labels[#labels + 1] = string.sub(name, 3)
    labels[#labels + 1] = value
  end
end
return {'created', created, 'revived', revived or false, 'hash_changed', changed, 'previous', {}, 'id', ARGV[1],
  'gen', tonumber(generation), 'principal', ARGV[2], 'state', state, 'created_at', tonumber(began), 'last_used_at', tonumber(used),
  'expires_at', tonumber(ends), 'ttl_ms', ttl, 'content_hash', hash, 'labels', labels, 'bindings', {}}
";

/// A script that uses a session, as every one of these does: reads `s`, `p` and the fields given, as `a` and `b`,
/// checks the principal and the state, and records the use in steps.
macro_rules! use_lua {
    ($fields:literal, $rest:literal) => {
        concat!(
            "local s, p, a, b = unpack(redis.call('HMGET', KEYS[1], 's', 'p'",
            $fields,
            "))",
            r"
if not p then return redis.error_reply('NOSESSION') end
if p ~= ARGV[1] then return redis.error_reply('DENIED') end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local reader, life, created, used, expires, ttl = string.match(s, '^%d+ (%d+) (%a+) (%d+) (%d+) (%d+) (%d+)$')
if reader ~= '1' then return redis.error_reply('ERR') end
if life ~= 'active' then return redis.error_reply('ENDED') end
if now >= tonumber(expires) then return redis.error_reply('NOSESSION') end
ttl = tonumber(ttl)
if now >= tonumber(used) + ttl / 16 then
  redis.call('HSET', KEYS[1], 's', '1 1 active ' .. created .. ' ' .. string.format('%d', now) .. ' '
    .. string.format('%d', now + ttl + math.floor(ttl / 16)) .. ' ' .. string.format('%d', ttl))
  redis.call('PEXPIREAT', KEYS[1], string.format('%d', now + ttl * 2))
end
",
            $rest
        )
    };
}

/// The transition of ROUTE for a binding that no worker owns, with its coalesced touch and its complete reply. A script
/// cannot know which workers are alive, so it does not check the driver.
pub(crate) const ROUTE: &str = use_lua!(
    ", 'b:' .. ARGV[2]",
    r"
if not a then return {'state', 'unbound'} end
local state, epoch, lease_until, instance, driver, upstream =
  string.match(a, '^(%a+) (%d+) %d+ (%d+) %d+ (%S+) (%S+) %S+ ?(%S*)$')
local reply = {'state', state, 'instance', instance, 'driver', driver, 'epoch', tonumber(epoch)}
if upstream ~= '' then
  reply[9], reply[10] = 'upstream_session', upstream
end
if state == 'claimed' then
  if now >= tonumber(lease_until) then reply[2] = 'orphaned' end
  reply[#reply + 1] = 'lease_until'
  reply[#reply + 1] = tonumber(lease_until)
end
return reply
"
);

/// The transition of TOUCH.
pub(crate) const TOUCH: &str = use_lua!("", "return {'expires_at', now + ttl}");

/// The transition of BIND for an unbound server and one instance: a script does not know which has the fewest bindings.
pub(crate) const BIND: &str = use_lua!(
    ", 'id', 'b:' .. ARGV[2]",
    r"
if b then return redis.error_reply('BOUND') end
local generation, epoch, rest = string.match(a, '^(%d+) (%d+) (.+)$')
epoch = string.format('%d', math.max(tonumber(epoch) + 1, now * 1000))
redis.call('HSET', KEYS[1], 'id', generation .. ' ' .. epoch .. ' ' .. rest, 'b:' .. ARGV[2], 'bound ' .. epoch .. ' '
  .. string.format('%d', now) .. ' 0 0 ' .. ARGV[5] .. ' ' .. ARGV[3] .. ' - ' .. ARGV[6], 'k:' .. ARGV[2], ARGV[4])
return {'won', 1, 'server', ARGV[2], 'state', 'bound', 'instance', ARGV[5], 'upstream_session', ARGV[6], 'owner', false,
  'owner_alive', false, 'owner_address', false, 'driver', ARGV[3], 'epoch', tonumber(epoch), 'bound_at', now,
  'lease_until', false, 'rebinds', 0, 'last_reason', false}
"
);
