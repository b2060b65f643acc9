-- What the same holder had under a lock key stays on this instance, behind the value that took its
-- place, until it would have ended: so a try that is not won can give it back (P23). What stands
-- behind may stand before something else in turn: a line, of values that end no later than those
-- before them.
local function behind(key, value)
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

-- Takes `value` out of the line under `key` that begins at `place`. What stands behind it moves up,
-- or goes too if it `forgets`, since the lease was won. True if `value` stood at the beginning.
local function leave_line(place, key, value, forgets)
  local found_at
  for step = 1, 32 do
    local here = redis.pcall('GET', place)
    if type(here) ~= 'string' then
      break
    end
    local next_place = behind(key, here)
    if here == value then
      found_at = step
    end
    if found_at and forgets then
      redis.call('DEL', place)
    elseif found_at then
      local former, left = redis.pcall('GET', next_place), redis.call('PTTL', next_place)
      redis.call('DEL', place, next_place) -- first: an instance that is full refuses to begin with a SET
      if type(former) == 'string' then
        put_back(place, former, left)
      end
      break
    end
    place = next_place
  end
  return found_at == 1
end
