-- Writes the first record of an instance that shows no trace of use, so that it votes at once (P15): an operator says that no lock was
-- held. Whether there is a trace is seen in the same instant.
--
-- KEYS  1 the record's key; 2 the tokens' key; 3 the floor's
-- ARGV  1 identity; 2 the longest ttl that it allows, in ms; 3 the channel of the calling client; 4 'write', or 'look' to write nothing;
--       5 the member of the tokens that is no lock's
--
-- {'unused'}, or what there is: {'record', the record}, {'token', of which lock}, {'listener', its channel}, {'flushed'}
local record = redis.pcall('GET', KEYS[1])
if record then
  return {'record', type(record) == 'string' and record or 'no string'}
end
local tokens = redis.pcall('ZRANGE', KEYS[2], 0, 1)
for _, lock in ipairs(tokens.err and {tokens.err} or tokens) do
  if lock ~= ARGV[5] then
    return {'token', lock}
  end
end
local listeners = redis.pcall('PUBSUB', 'CHANNELS', 'redquorum:wake:*')
if listeners.err then
  return listeners
end
for _, channel in ipairs(listeners) do
  if channel ~= ARGV[3] and not string.find(channel, '-of-', 1, true) then -- that is a list, whose clients have channels of their own
    return {'listener', channel}
  end
end
if redis.call('MGET', KEYS[3])[1] then
  return {'token', KEYS[3]} -- there were tokens
end
local stats = redis.pcall('INFO', 'commandstats')
if type(stats) == 'table' then
  return stats
end
if string.find(stats, 'cmdstat_flushall:calls=[1-9]') or string.find(stats, 'cmdstat_flushdb:calls=[1-9]') then
  return {'flushed'}
end

if ARGV[4] == 'write' then
  local time = redis.call('TIME')
  local now_ms = math.floor(time[1] * 1000 + time[2] / 1000)
  redis.call('SET', KEYS[1], string.format('%s %.0f %s opened %.0f', ARGV[1], now_ms, ARGV[2], now_ms))
end
return {'unused'}
