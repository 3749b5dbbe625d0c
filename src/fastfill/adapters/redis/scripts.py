"""The scripts that run in Redis: each one alone, so what it compares is still so when it sets."""

from __future__ import annotations

from fastfill.adapters.redis.packing import PACKING

SCRIPT_ROWS = 64  # that one script reads or writes: others wait as long as it runs

# What a row is: its old vector and its input; a leading digit tells a missing one from an empty.
FINGERPRINT = """
local function fingerprint(vector, text)
  if vector and text then return redis.sha1hex('1' .. vector .. '1' .. text) end
  return redis.sha1hex(vector and '1' .. vector .. '0' or '0' .. (text and '1' .. text or '0'))
end
"""

# ARGV: how many of the fields make the fingerprint (0 or 2), the number of the first one that is
# wanted, then the fields; one without a name is missing. The answer: for each key 1 if it is a
# hash, the fingerprints of those that are, and their fields.
READ = """
local first, fields, there, prints, columns = tonumber(ARGV[2]), {unpack(ARGV, 3)}, {}, {}, {}
local function row_of(key)
  local row, found = redis.pcall('HMGET', key, unpack(fields)), false
  if row.err then return false end
  for n, name in ipairs(fields) do
    if name == '' then row[n] = false end
    found = found or row[n]
  end
  return (found or redis.call('EXISTS', key) == 1) and row
end
for n = first, #fields do columns[n] = {} end
local rows = 0
for i, key in ipairs(KEYS) do
  local row = row_of(key)
  there[i] = row and '1' or '0'
  if row then
    rows = rows + 1
    if ARGV[1] == '2' then prints[rows] = fingerprint(row[1], row[2]) end
    for n = first, #fields do columns[n][rows] = row[n] end
  end
end
local answer = {table.concat(there), table.concat(prints)}
for n = first, #fields do answer[#answer + 1] = packed(columns[n]) end
return answer
"""

# ARGV: the names of eight fields, generation and model to write, then six lists of values of the
# keys: fingerprint, generation and model as they were read, vector, variance, priority.
SAME_ROW = """
local function same(key, print, generation, model)
  local row = redis.pcall('HMGET', key, ARGV[1], ARGV[2], ARGV[4], ARGV[5])
  if row.err or row[3] ~= generation or row[4] ~= model then return false end
  local text = ARGV[2] ~= '' and row[2]
  local found = row[1] or text or row[3] or row[4] or redis.call('EXISTS', key) == 1
  return found and fingerprint(row[1], text) == print
end
"""
WRITE = """
local written, list = 0, {}
for n = 1, 6 do list[n] = unpacked(ARGV[9 + 2 * n], ARGV[10 + 2 * n]) end
for i, key in ipairs(KEYS) do
  if same(key, list[1][i], list[2][i], list[3][i]) then
    local row = {ARGV[4], ARGV[9], ARGV[5], ARGV[10], ARGV[6], list[5][i],
      ARGV[7], list[6][i], ARGV[8], list[1][i]}
    if list[4][i] then row[11], row[12] = ARGV[3], list[4][i]
    else redis.call('HDEL', key, ARGV[3]) end
    redis.call('HSET', key, unpack(row))  -- one command, because each one indexes the row again
    written = written + 1
  end
end
return written
"""


def read_script() -> str:
    """Fields of hashes, and what a write compares of them."""
    return PACKING + FINGERPRINT + READ


def write_script() -> str:
    """Compare and set rows; how many were written?"""
    return PACKING + FINGERPRINT + SAME_ROW + WRITE


# KEYS: the hash of documents. ARGV: name, value, version. A version is a field of its own.
SAVE = """
local field = 'version/' .. ARGV[1]
if tonumber(redis.call('HGET', KEYS[1], field) or 0) ~= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], field, ARGV[3] + 1, 'value/' .. ARGV[1], ARGV[2])
return 1
"""
