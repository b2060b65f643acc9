-- Tokens that no clock can have made (P12). A token counts 4096ths of a microsecond since 2025; as a
-- double it is exact enough for that. 1735603200000 is one day before 2025 in ms: a token may be a day
-- ahead of this instance's clock.
local function is_ahead(token, now_ms)
  return token / 4096000 > now_ms - 1735603200000
end

-- Whether what is stored for a resource counts. Anything else is as if nothing were, and is overwritten.
local function is_valid_token(stored, now_ms)
  return #stored == 19 and not string.find(stored, '%D') and not is_ahead(stored, now_ms)
end
