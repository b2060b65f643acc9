-- Undoes what an acquire that will not be granted has set so far (P11): deletes the keys that were
-- free, and puts back what the same holder had under the others.
local function take_back(taken, resumed)
  if #taken > 0 then
    redis.call('DEL', unpack(taken))
  end
  for _, former in ipairs(resumed or {}) do
    redis.call('SET', unpack(former))
  end
end
