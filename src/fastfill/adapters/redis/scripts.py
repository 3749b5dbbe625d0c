"""The scripts that run in Redis: each one alone, so what it compares is still so when it sets."""

from __future__ import annotations

# What a row is: its old vector and its input; a leading digit tells a missing one from an empty.
FINGERPRINT = """
local function fingerprint(key, old, input)
  local vector, text = redis.call('HGET', key, old), false
  if input ~= '' then text = redis.call('HGET', key, input) end
  return redis.sha1hex((vector and '1' .. vector or '0') .. (text and '1' .. text or '0'))
end
"""

# ARGV: the names of nine fields, generation and model to write, then six values for each key:
# fingerprint, generation and model as they were read, vector, variance, priority.
SAME_ROW = """
local function same(key, base)
  local function value(name) return redis.call('HGET', key, name) or '' end
  return redis.call('EXISTS', key) == 1 and fingerprint(key, ARGV[1], ARGV[2]) == ARGV[base]
    and value(ARGV[4]) == ARGV[base + 1] and value(ARGV[5]) == ARGV[base + 2]
end
"""
WRITE = """
local written = 0
for i, key in ipairs(KEYS) do
  local base = 11 + (i - 1) * 6
  if same(key, base) then
    local row = {ARGV[4], ARGV[9], ARGV[5], ARGV[10], ARGV[6], ARGV[base + 4],
      ARGV[7], ARGV[base + 5], ARGV[8], ARGV[base]}
    if ARGV[base + 3] == '' then redis.call('HDEL', key, ARGV[3])
    else row[11], row[12] = ARGV[3], ARGV[base + 3] end
    redis.call('HSET', key, unpack(row))  -- one command, because each one indexes the row again
    written = written + 1
  end
end
return written
"""


def write_script() -> str:
    """Compare and set rows; how many were written?"""
    return FINGERPRINT + SAME_ROW + WRITE


# KEYS: the hash of documents. ARGV: name, value, version. A version is a field of its own.
SAVE = """
local field = 'version/' .. ARGV[1]
if tonumber(redis.call('HGET', KEYS[1], field) or 0) ~= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], field, ARGV[3] + 1, 'value/' .. ARGV[1], ARGV[2])
return 1
"""
