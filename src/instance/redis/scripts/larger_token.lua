-- The largest token stored for the resources of a round that is not smaller than `token`, nil if none is (P12).
local function larger_token(first, count, token)
  local largest, least = nil, tonumber(token)
  for i = first, first + count - 1 do
    local found = redis.call('ZSCORE', TOKENS, KEYS[i])
    local stored = found and tonumber(found)
    if stored and stored >= least and not is_ahead(stored, now_ms) then
      largest, least = found, stored
    end
  end
  return largest
end

-- Stores the token for every resource of a round, whatever is stored.
local function store_token(first, count, token)
  local pairs_of = {}
  for i = first, first + count - 1 do
    pairs_of[#pairs_of + 1] = token
    pairs_of[#pairs_of + 1] = KEYS[i]
  end
  redis.call('ZADD', TOKENS, unpack(pairs_of))
end
