-- Carries out several requests and returns their replies, in their order.
--
-- The usual ones are short: the releases that come first are compared and deleted all together, and
-- an acquire that is granted returns when its lock expires, as in acquire_alone.lua.
--
-- KEYS  for each request its lock keys
-- ARGV  1, 2 see admission.lua; 3 how many releases come first; 4 the usual ttl;
--       5 a letter for each other request; for each request: value, token, and if it is none of the first
--       releases and its letter is no `a`: number of resources, ttl; for P and Q then: successors, grace, message
--
-- a, A acquire; E extend; R release, S that of a round that was resent; P, Q pass on, likewise
local first, usual_ttl, letters = tonumber(ARGV[3]), ARGV[4], ARGV[5]
local replies, key, arg = {}, 1, 6

local lock_keys, own = {}, {}
for i = 1, first do
  lock_keys[i] = KEYS[i]
end
local found = first > 0 and redis.pcall('MGET', unpack(lock_keys))
for i = 1, first do
  local value, token = ARGV[arg], ARGV[arg + 1]
  if found.err then
    replies[i] = release(key, 1, value, token, false) -- MGET is denied
  elseif found[i] == value then
    own[#own + 1] = KEYS[key]
    replies[i] = 1
  else
    set_tombstone(KEYS[key], token)
    replies[i] = 0
  end
  key, arg = key + 1, arg + 2
end
if #own > 0 then
  redis.call('DEL', unpack(own))
end

local expires = now_ms + usual_ttl

for i = 1, #letters do
  local letter, value, token, reply = string.sub(letters, i, i), ARGV[arg], ARGV[arg + 1], nil
  if letter == 'a' then
    if left == 0 and acquire_one(KEYS[key], value, usual_ttl, token, expires) then
      reply = expires
    else
      reply = acquire(key, 1, value, usual_ttl, token)
    end
    key, arg = key + 1, arg + 2
  else
    local count, ttl = tonumber(ARGV[arg + 2]), ARGV[arg + 3]
    if letter == 'A' then
      reply = acquire(key, count, value, ttl, token)
    elseif letter == 'E' then
      reply = extend(key, count, value, ttl, token)
    elseif letter == 'P' or letter == 'Q' then
      local successors, grace, message = ARGV[arg + 4], ARGV[arg + 5], ARGV[arg + 6]
      reply = pass_on(key, value, token, letter == 'Q', successors, grace, message)
      arg = arg + 3
    else
      reply = release(key, count, value, token, letter == 'S')
    end
    key, arg = key + count, arg + 4
  end
  replies[first + i] = reply
end
return replies
