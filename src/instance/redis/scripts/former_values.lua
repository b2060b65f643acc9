-- What the same holder had under a lock key stays on this instance, behind the value that took its
-- place, until it would have ended: so a try that is not won can give it back (P23). What stands
-- behind may stand before something else in turn: a chain, of values that end no later than those
-- before them.
local function former_key(key, value)
  return 'redquorum:former:' .. value .. ':' .. key
end

-- Sets a key for what is left of its life in ms, -1 for ever.
local function put_back(key, value, left)
  if left < 0 then
    redis.call('SET', key, value)
  else
    redis.call('SET', key, value, 'PX', math.max(left, 1))
  end
end

-- Takes `value` out of the chain under `key` that begins at `at_key`. What stands behind it moves up,
-- or goes too with `forget`, for a lease that was won. True if `value` stood at the beginning.
local function leave_chain(at_key, key, value, forget)
  local found_at
  for step = 1, 32 do
    local here = redis.pcall('GET', at_key)
    if type(here) ~= 'string' then
      break
    end
    local next_key = former_key(key, here)
    if here == value then
      found_at = step
    end
    if found_at and forget then
      redis.call('DEL', at_key)
    elseif found_at then
      local former, left = redis.pcall('GET', next_key), redis.call('PTTL', next_key)
      redis.call('DEL', at_key, next_key) -- first: an instance that is full refuses to begin with a SET
      if type(former) == 'string' then
        put_back(at_key, former, left)
      end
      break
    end
    at_key = next_key
  end
  return found_at == 1
end
