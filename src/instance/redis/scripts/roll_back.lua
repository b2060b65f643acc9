-- Undoes what an acquire that will not be granted has set so far (P11).
local function roll_back(taken)
  if #taken > 0 then
    redis.call('DEL', unpack(taken))
  end
end
