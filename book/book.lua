-- book.lua -- pandoc filter: includes code, numbers equations, resolves references.
--
--   `ref/07_merge.c`{.include fn=ref_merge}       a function and its comment
--   `ref/07_merge.c`{.include region=fold-step}   between //> and //< fold-step
--                            region= and fn=: regions first. fold=1: hidden until a click
--   `05-affine`{.example}    a section of the output of book/example.c
--   `bench.md`{.results}     a table made from bench/results/
--   `a.tsv`{.table}          a table from a file of tab-separated values
--   `steps`{.labs}           the table of all lab steps
--   `07_merge`{.kernels}     the variants of a stage, and their table unless .names
--   ```{.docstrings}                      the docstrings of kcp_torch, by reference.py
--   [04_chunk v2_warp forward]{.ms}       a variant's recorded time, from a .results table
--   [affine/alive]{.val}                  one number from the output of book/example.c
--   ![caption](affine.svg){#fig:affine}   a figure that book/figures/ drew
--   ::: answers               the answers to the exercises above, hidden until a click
--   $$ ... $$ {#eq:fold held=07_merge/twin}   an equation and the test that checks it
--   [@eq:fold] [@sec:fold] [@fig:affine] [@ch:07]        a reference, from any chapter
--
-- A paragraph may have only one of `...`{.include} to `...`{.kernels}.
-- The first paragraph of a page is its lead, in larger type. A page's metadata `files` adds
-- files to those of its listings.
-- If COLLECT is set, the filter writes the labels of this chapter. Otherwise it reads the
-- labels of all chapters from file LABELS. A missing file, name or label stops the build.
local collect = os.getenv("COLLECT") ~= nil
local labels = os.getenv("LABELS")
local out = os.getenv("OUT") or "build/book"
local chapter, page = "?", "?"
local in_chapter = true          -- false for index.md, idea.md and users.md, whose figures are 1, 2, ...
local known, order, shown, ranges = {}, {}, {}, {}
local on_page = pandoc.List({})  -- the files outside cuda/ that the page shows

local function die(...)
  io.stderr:write("book: ", page, ": ", string.format(...), "\n")
  os.exit(1)
end

local cache = {}
local function lines_of(path)
  if cache[path] then return cache[path] end
  local f = io.open(path)
  if not f then return nil end
  local t = {}
  for l in f:lines() do t[#t + 1] = l end
  f:close()
  cache[path] = t
  return t
end

local function text(x) return pandoc.utils.stringify(x) end

-- ---- code -----------------------------------------------------------------------

local function is_marker(l) return l:match("^%s*//[<>] [%w_-]+%s*$") end

local function find_region(path, L, name)
  local a, b
  for i, l in ipairs(L) do
    if l:match("^%s*//> (%S+)%s*$") == name then
      if a then die("%s: region %s begins twice", path, name) end
      a = i + 1
    end
    if l:match("^%s*//< (%S+)%s*$") == name then b = i - 1 end
  end
  if not (a and b and a <= b) then return nil end
  return a, b
end

-- Finds a function, from column 0 to the first closing brace in column 0. The comment on the
-- lines directly above belongs to the function.
local function find_fn(path, L, name)
  local pat, at = "^%a.*[%s%*]" .. name:gsub("%W", "%%%0") .. "%(", nil
  for i, l in ipairs(L) do
    local j = i                      -- the head's last line, which ends with `;` in a declaration
    while L[j] and l:match(pat) and not L[j]:match("[;{}]%s*$") do j = j + 1 end
    if l:match(pat) and not (L[j] or ""):match(";%s*$") then
      if at then die("%s: %s is defined twice", path, name) end
      at = i
    end
  end
  if not at then return nil end
  local b = at
  while L[b] and not L[b]:match("^}") do b = b + 1 end
  if not L[b] then die("%s: %s has no end", path, name) end
  local a = at
  while a > 1 and (L[a - 1]:match("^ ?%*") or L[a - 1]:match("^/[/%*]")
        or L[a - 1]:match("^template") or L[a - 1]:match("^static[%w ]*$")
        or L[a - 1]:match("^ .*>$") and a > 2 and L[a - 2]:match("^template")) do a = a - 1 end
  return a, b
end

local function where(path, line)
  return pandoc.Link({ pandoc.Str(path .. ":" .. line) },
                     string.format("src/%s.html#L%d", path, line), "", { class = "where" })
end

local function code_of(path, L, a, b)
  local t, margin = {}, math.huge
  for i = a, b do
    if not is_marker(L[i]) then
      t[#t + 1] = L[i]
      if L[i]:match("%S") then margin = math.min(margin, #L[i]:match("^ *")) end
    end
  end
  for i, l in ipairs(t) do t[i] = l:sub(margin + 1) end
  if #t > 80 then die("%s:%d: %d lines is too long to show; use regions", path, a, #t) end
  return table.concat(t, "\n")
end

-- ---- labs -----------------------------------------------------------------------

-- A listing leaves out code that answers a lab step. A click shows the whole code.
local steps, by_file = {}, {}
local function steps_of(path)
  if #steps == 0 then
    local p = io.popen("cat book/labs/*.lab 2>/dev/null")
    local step
    for l in p:lines() do
      local key, rest = l:match("^(%l+) +(.*)$")
      if key == "lab" then step = { name = rest, points = 0 }; table.insert(steps, step) end
      if key == "file" then by_file[rest] = by_file[rest] or {}; table.insert(by_file[rest], step) end
      if key == "score" then step.points = step.points + rest:match("^%d+") end
      if step and key then step[key] = rest end
    end
    p:close()
  end
  return by_file[path] or {}
end

-- Returns three values: lines a..b without the regions of lab steps; the names of these
-- steps; the number of remaining lines with code.
local function without_steps(path, L, a, b)
  local t, names, left, skip = {}, {}, 0, nil
  for _, s in ipairs(steps_of(path)) do
    if not s.twist then s.from, s.to = find_region(path, L, s.region) end
  end
  for i = a, b do
    local inside
    for _, s in ipairs(steps_of(path)) do
      if s.from and i >= s.from and i <= s.to then inside = s end
    end
    if inside and inside ~= skip then
      names[#names + 1] = inside.name
      t[#t + 1] = L[i]:match("^ *") .. "/* lab step " .. inside.name .. " */"
    elseif not inside and not is_marker(L[i]) then
      t[#t + 1] = L[i]
      if L[i]:match("[%w]") and not L[i]:match("^ ?[/%*]") then left = left + 1 end
    end
    skip = inside
  end
  return t, names, left
end

local function include(cb)
  local path = cb.attributes.file or die("include without file=")
  local L = lines_of(path) or die("no file %s", path)
  local lang = (path:match("%.cuh?$") and "cpp") or (path:match("%.[ch]$") and "c" or path:match("%.def$") and "c") or "text"
  local parts, open, steps_here, left, first = {}, {}, {}, 0, nil
  local function take(a, b, name, what)
    if not a then die("%s: no %s %s", path, what, name) end
    first = first or a
    parts[#parts + 1] = code_of(path, L, a, b)
    local t, names, n = without_steps(path, L, a, b)
    local rest = code_of(path, t, 1, #t)
    if rest ~= open[#open] then open[#open + 1] = rest end    -- one gap for one lab step
    left = left + n
    for _, x in ipairs(names) do
      if not steps_here[x] then steps_here[#steps_here + 1], steps_here[x] = x, true end
    end
    if path:match("^cuda/") then ranges[#ranges + 1] = path .. "\t" .. a .. "\t" .. b end
    if what == "function" then shown[#shown + 1] = path .. "\t" .. name end
  end
  for name in (cb.attributes.region or ""):gmatch("%S+") do
    local a, b = find_region(path, L, name)
    take(a, b, name, "region")
  end
  for name in (cb.attributes.fn or ""):gmatch("%S+") do
    local a, b = find_fn(path, L, name)
    take(a, b, name, "function")
  end
  if not first then take(1, #L, "", "file") end
  local source = path:match("%.[ch]$") or path:match("%.def$") or path:match("%.cuh?$")
  if source and not path:match("^cuda/") and not on_page:includes(path) then on_page:insert(path) end
  local from = source and where(path, first) or pandoc.Span({ pandoc.Str(path) }, { class = "where" })
  local function listing(t) return pandoc.CodeBlock(table.concat(t, "\n\n"), pandoc.Attr("", { lang })) end
  local blocks = pandoc.List({ pandoc.Plain { from } })
  if #steps_here == 0 then blocks:insert(listing(parts))
  else
    if left > 5 then blocks:insert(listing(open)) end
    blocks:insert(pandoc.RawBlock("html", '<details class="solution"><summary>Show the code, which answers lab step '
      .. table.concat(steps_here, ", ") .. "</summary>"))
    blocks:insert(listing(parts))
    blocks:insert(pandoc.RawBlock("html", "</details>"))
  end
  return pandoc.Div(blocks, pandoc.Attr("", { "snippet", source and "code" or "wrapped" }))
end

-- ---- kernels and mutants, from the records at the end of their files ----------------

-- Returns the records of a file, each with `stage`, `name`, `why` and `line`. If a record
-- has no stage, such as a row MUTANT(ident, FLAG, "why") of the list of tests/mutants.h, the
-- file's folder gives the stage.
local function records(path)
  local L, t = lines_of(path) or {}, {}
  for i, l in ipairs(L) do
    local macro = l:match("^ *(MUTANT)%(") or l:match("^([A-Z_]+)%(")
    local pair = macro == "KCP_VARIANT_PAIR"
    if pair or macro and macro:match("VARIANT$") or macro == "KCP_CHECK" or macro == "MUTANT" or macro == "MUTANT_RECORD" or macro == "RECORD" or macro == "CHECK" then
      local s, j = l:gsub("%s*\\$", ""), i
      while not s:match("[;)]$") and L[j + 1] and j < i + 8 do j = j + 1; s = s .. " " .. L[j]:gsub("%s*\\$", "") end
      s = s:gsub('"%s+"', "")
      local words = {}
      for w in s:gmatch('"([^"]*)"') do words[#words + 1] = w end
      local stage = path:match("/(%w%w_[%w_]+)/[^/]+%.[ch]$")
      if macro == "MUTANT_RECORD" then
        t[#t + 1] = { stage = words[1], name = words[3], why = words[4], line = i }
      elseif macro == "RECORD" and #words >= 2 and stage then
        t[#t + 1] = { stage = stage, name = words[1], why = words[#words], line = i }
      elseif #words >= 3 then
        t[#t + 1] = { stage = words[1], name = words[2], why = words[3], line = i }
        if pair then t[#t + 1] = { stage = words[1], name = words[2] .. "_f32", why = words[3], line = i } end
      elseif #words >= 1 and stage then
        local ident = s:match("^ *[A-Z_]+%(([%w_]+)")
        t[#t + 1] = { stage = stage, name = (macro == "MUTANT" and "mutant_" or "") .. ident,
                      why = words[#words], line = i }
      end
    elseif l == "MUTANT_TWIN" then
      t[#t + 1] = { stage = path:match("/(%w%w_[%w_]+)/"), name = "twin", why = "correct", line = i }
    end
  end
  return t
end

local function files(pattern)
  local t, p = {}, io.popen("ls " .. pattern .. " 2>/dev/null")
  for l in p:lines() do t[#t + 1] = l end
  p:close()
  return t
end

-- ---- numbers ----------------------------------------------------------------------

-- Reads the output of the book's programs: sections below "== name", values "@name value".
local sections, values
local function read_example()
  sections, values = {}, {}
  local name
  for _, l in ipairs(lines_of(out .. "/example.txt") or {}) do
    local k, v = l:match("^@(%S+) (.*)$")
    if l:match("^== ") then name = l:sub(4); sections[name] = {}
    elseif k then values[k] = v
    elseif name then table.insert(sections[name], l) end
  end
end

-- Splits a printed number such as 6.0e-08 into its digits and its power of ten, if any.
local function digits_of(v)
  local d, sign, e = v:match("^(-?%d[%d.]*)e([+-])0*(%d+)$")
  return d or v, d and (sign == "-" and "-" or "") .. e
end

local function value(name)
  if not values then read_example() end
  return values[name] or die("the example prints no value %s", name)
end

-- Prepares a formula: inserts values; replaces \mathrm by \text, because texmath turns
-- \mathrm{ext} into three italic letters; prints a name of two letters as one symbol.
local function math_of(m)
  m.text = m.text:gsub("%[([%w/._-]+)%]{%.val}", function(name)
    if collect then return "0" end
    local d, e = digits_of(value(name))
    return e and ((d == "1" and "" or d .. " \\cdot ") .. "10^{" .. e .. "}") or d
  end)
  m.text = m.text:gsub("\\mathrm(%b{})", "\\text%1")
  m.text = m.text:gsub("%f[%a]HV%f[%A]", "\\mathit{HV}"):gsub("%f[%a]NS%f[%A]", "\\mathit{NS}"):gsub("%f[%a\\]cu%f[%A]", "\\mathit{cu}")
  return m
end

local function example(cb)
  if not sections then read_example() end
  local s = sections[cb.attributes.name] or die("the example prints no section %s", cb.attributes.name)
  while s[#s] == "" do s[#s] = nil end
  local by = "book/example.c"
  for _, f in ipairs(files("book/*.c book/parts.py")) do
    for _, l in ipairs(lines_of(f) or {}) do
      if l:find("== " .. cb.attributes.name, 1, true) then by = f end
    end
  end
  return pandoc.Div({ pandoc.Plain { pandoc.Link({ pandoc.Str("printed by " .. by) },
                        "src/" .. by .. ".html", "", { class = "where" }) },
                      pandoc.CodeBlock(table.concat(s, "\n"), pandoc.Attr("", { "text" })) },
                    pandoc.Attr("", { "snippet", "printed" }))
end

-- Returns the cells of a table's row.
local function cells_of(l)
  local row = {}
  for cell in l:gmatch("|([^|]*)") do row[#row + 1] = cell:match("^%s*(.-)%s*$") end
  if #row > 1 then row[#row] = nil end
  return row
end

local function without_empty(rows)
  local full, kept = {}, {}
  for i, row in ipairs(rows) do
    for c, cell in ipairs(row) do full[c] = full[c] or i > 2 and cell ~= "" end
  end
  for i, row in ipairs(rows) do
    local some = {}
    for c, cell in ipairs(row) do if full[c] then some[#some + 1] = cell end end
    kept[i] = "| " .. table.concat(some, " | ") .. " |"
  end
  return kept
end

local function narrowed(md)
  local lines, rows = {}, {}
  for _, l in ipairs(md) do
    if l:match("^|") then rows[#rows + 1] = cells_of(l)
    else
      if #rows > 0 then table.move(without_empty(rows), 1, #rows, #lines + 1, lines); rows = {} end
      lines[#lines + 1] = l
    end
  end
  if #rows > 0 then table.move(without_empty(rows), 1, #rows, #lines + 1, lines) end
  return lines
end

-- Parses the Markdown of a table; its formulas may use the macros of book/letters.md.
local function markdown(md)
  local letters = table.concat(lines_of("book/letters.md") or {}, "\n")
  local blocks = pandoc.List({})
  for _, b in ipairs(pandoc.read(letters .. "\n\n" .. md, "markdown").blocks) do
    if b.t ~= "RawBlock" then blocks:insert(b) end
  end
  return pandoc.Div(blocks):walk({ Math = math_of }).content
end

-- Returns a table of all lab steps.
local function lab_table()
  local md = { "| step | points | chapter | what you write |", "|:---------|----:|:---------|:----------------------|" }
  steps_of("")
  for _, s in ipairs(steps) do
    md[#md + 1] = string.format("| %s | %d | %s | %s |", s.name, s.points, s.book:gsub("^chapters? ", ""), s.title)
  end
  return markdown(table.concat(md, "\n"))
end

-- Returns a paragraph with the lab steps of this chapter, if there are any.
local function labs_of_chapter(number)
  local list = {}
  steps_of("")
  for _, s in ipairs(steps) do
    local book = s.book .. " " .. (s.book:match("^chapters %d%d and (%d%d)") or ""):gsub("%d%d", "chapter %0")
    if book:find("chapters? " .. number) then list[#list + 1] = "`" .. s.name .. "`, " .. s.title end
  end
  if #list == 0 then return {} end
  return markdown("*Labs* ([how they work](labs.html)), by `make lab LAB=` and the name: " .. table.concat(list, "; ") .. ".")
end

-- Folds a table of many cases: the first rows and the notes stay visible, the other rows
-- open on a click.
local function fold_runs(md)
  md = narrowed(md)
  local head, from, to
  for i, l in ipairs(md) do
    if l:match("^| case") then head = i end
    if head and l:match("^|") then to = i end
    if head and not from and i > head + 6 and l:match("^| %S") then from = i end
  end
  if not from or to - from < 6 then return md end
  local folds, cases = {}, 0
  local last
  for i = from, to do
    local case = md[i]:match("^| (%S[^|]*)")
    if case and case ~= last then cases = cases + 1; last = case end
  end
  for i, l in ipairs(md) do
    if i == from then
      table.insert(folds, string.format('\n::: {.folded title="The other %d cases that were recorded"}', cases))
      table.insert(folds, md[head])
      table.insert(folds, md[head + 1])
    end
    table.insert(folds, l)
    if i == to then table.insert(folds, ":::\n") end
  end
  return folds
end

-- Returns the docstrings of kcp_torch, which reference.py prints as Markdown.
local function docstrings()
  local p = io.popen("python3 book/examples/torch/reference.py")
  local md = p:read("a")
  if not p:close() then die("reference.py failed") end
  return markdown(md)
end

local function results(cb)
  local md = lines_of(out .. "/results/" .. cb.attributes.file) or { "Not recorded yet." }
  if cb.attributes.fold then md = fold_runs(md) end
  return pandoc.Div(markdown(table.concat(md, "\n")), pandoc.Attr("", { "results" }))
end

-- Returns the recorded time of "STAGE VARIANT WAY [kept]" from the stage's table. Tables of
-- whole passes have times in ms and a column for the case. Other tables have times in us.
local function recorded(what)
  local stage, variant, way, kept = what:match("^(%S+) (%S+) (%S+)%s*(.*)$")
  local case, want_case = "", "KDA, live gates, T = 8192, H = 96" .. (kept ~= "" and ", " .. kept or "")
  for _, l in ipairs(lines_of(out .. "/results/" .. (stage or "?") .. ".md") or {}) do
    local row = l:match("^|") and cells_of(l) or {}
    local whole = row[3] and row[3]:match("^`")
    if whole and row[1] ~= "" then case = row[1]:gsub("\u{a0}", " ") end
    local name, time = row[whole and 3 or 1] or "", row[whole and 4 or 3] or ""
    local us = tonumber(time:match("^[%d.]+"))
    if name:find("`" .. variant .. "`", 1, true) and row[2] == way and us and (not whole or case == want_case) then
      if not whole then us = us / 1000 end
      local mark, gpu = (name .. time):match("†") or "", not whole and row[8] or nil
      for _, run in ipairs(lines_of(out .. "/results/" .. stage .. ".md")) do
        gpu = gpu or run:match("^%- %*" .. (row[9] or "?") .. "%*: NVIDIA (%w+)")
      end
      return pandoc.Str(string.format(us < 0.1 and "%.4f" or us < 10 and "%.3f" or "%.0f", us) .. mark .. "\u{a0}ms"
                        .. (gpu and " (" .. gpu .. ")" or ""))
    end
  end
  return pandoc.Str("not recorded")
end

local function kernels(div)
  local stage = text(div)
  local items = {}
  for _, f in ipairs(files("cuda/" .. stage .. "/*.cu cuda/" .. stage .. "/*.c cuda/18_hopper/*.cu cuda/18_hopper/*/*.cu")) do
    for _, r in ipairs(records(f)) do
      if r.stage == stage then items[#items + 1] = { pandoc.Plain { pandoc.Link({ pandoc.Code(r.name) },
          string.format("src/%s.html#L%d", f, r.line)), pandoc.Str(": " .. r.why) } } end
    end
  end
  if #items == 0 then die("no variant of stage %s", stage) end
  local blocks = pandoc.List({ pandoc.Para { pandoc.Str("Variants of "), pandoc.Code(stage), pandoc.Str(" in the tree, each with the idea that its record states:") },
                               pandoc.BulletList(items) })
  local md = not div.classes:includes("names") and lines_of(out .. "/results/" .. stage .. ".md")
  if md then blocks:extend(markdown(table.concat(fold_runs(md), "\n"))) end
  return pandoc.Div(blocks)
end

-- Makes a Div of each item of a list of errata: the source (what is before the first
-- emphasis), the statement and what is right, and links to the mutants whose `why` has the
-- erratum's number, or the reason (*No test:*) for which there is none.
local function errata(div)
  local mutants, out = {}, pandoc.List({})
  for _, f in ipairs(files("tests/*/*.[ch]")) do
    for _, r in ipairs(records(f)) do
      for list in r.why:gmatch("errat[a-z]* ([%d, ]+)") do
        for n in list:gmatch("%d+") do
          mutants[n] = mutants[n] or pandoc.List({})
          if #mutants[n] > 0 then mutants[n]:insert(pandoc.Str(", ")) end
          mutants[n]:insert(pandoc.Link({ pandoc.Code(r.stage .. "/" .. r.name) }, string.format("src/%s.html#L%d", f, r.line)))
        end
      end
    end
  end
  for i, item in ipairs(div.content[1].content) do
    local parts, n = { pandoc.List({ pandoc.Strong { pandoc.Str(i .. ".") }, pandoc.Space() }) }, tostring(i)
    for _, x in ipairs(item[1].content) do
      local head = x.t == "Emph" and text(x)
      if head == "Right is:" then parts[2][#parts[2]] = pandoc.LineBreak()
      elseif head and (#parts == 1 and head:match(":$") or head == "No test:") then
        parts[#parts]:remove()
        parts[#parts + 1] = pandoc.List({})
      end
      parts[#parts]:insert(head == "No test:" and pandoc.Str(head) or x)
    end
    if mutants[n] then parts[3] = pandoc.List({ pandoc.Str("Proved by: ") }) .. mutants[n] end
    if not parts[3] then die("erratum %s has neither a mutant nor a reason", n) end
    out:insert(pandoc.Div({ pandoc.Para(parts[1]), pandoc.Para(parts[2]), pandoc.Para(parts[3]) },
                          pandoc.Attr("erratum-" .. n, { "erratum" })))
  end
  return out
end

-- Makes a table from a file of tab-separated values.
local function tsv(cb)
  local L = lines_of(cb.attributes.file) or die("no table %s", cb.attributes.file)
  local md, wide, words = {}, {}, {}
  for _, l in ipairs(L) do
    if not l:match("^#") then
      md[#md + 1] = "| " .. l:gsub("\t", " | ") .. " |"
      local i = 0
      for cell in (l .. "\t"):gmatch("([^\t]*)\t") do
        i = i + 1
        wide[i] = math.max(wide[i] or 4, math.min(#cell, 40))
        if #md > 1 and not cell:match("^[%d., ]*$") then words[i] = true end
      end
    end
  end
  local rule = "|"          -- column widths; numbers are right-aligned
  for i, n in ipairs(wide) do rule = rule .. (words[i] and ":" .. ("-"):rep(n) or ("-"):rep(n) .. ":") .. "|" end
  table.insert(md, 2, rule)
  return pandoc.Div(markdown(table.concat(md, "\n")), { class = "results" })
end

-- ---- figures ----------------------------------------------------------------------

local figno = 0
local function figure(img, id)
  figno = figno + 1
  local script = img.src:match("%.js$")
  local path = out .. (script and "/" or "/figures/") .. img.src
  local f = io.open(path)
  local svg = f and f:read("a")
  if svg and script then         -- an interactive figure, drawn by its script
    svg = '<div class="play computed" role="group" aria-label="' .. text(img.caption):gsub('"', "'")
          .. '"><noscript>This figure needs JavaScript; the figure above does not.</noscript></div><script>' .. svg .. "</script>"
  end
  if f then f:close() end
  if not svg and script and not collect then return {} end   -- no compiler for WebAssembly
  if not svg then
    if not collect then die("no figure %s", path) end
    svg = ""
  elseif not svg:find("<title", 1, true) and not svg:find("aria-label=", 1, true) then
    die("%s has no text alternative", path)
  end
  svg = svg:gsub("<%?xml.-%?>", "")
  local no = "Figure " .. (in_chapter and chapter .. "." or "") .. figno
  if collect and id ~= "" then order[#order + 1] = { id, no } end
  local cap = pandoc.List({ pandoc.Strong { pandoc.Str(no .. ".") }, pandoc.Space() })
  cap:extend(img.caption)
  return pandoc.Div({ pandoc.RawBlock("html", script and svg or '<div class="scroll">' .. svg .. "</div>"),
                      pandoc.Div({ pandoc.Plain(cap) }, { class = "caption" }) },
                    pandoc.Attr(id, { "figure" }))
end

-- ---- equations --------------------------------------------------------------------

-- Finds the file and line of the check, variant or mutant in tests/07_merge/ to which an
-- attribute held=07_merge/name refers. Without a name, it refers to 07_merge/checks.c.
local function find_test(held)
  local stage, name = held:match("^([^/]+)/?(.*)$")
  local all = files("tests/" .. stage .. "/*.[ch]")
  table.insert(all, 1, "tests/" .. stage .. "/checks.c")
  for _, f in ipairs(all) do
    if name == "" and lines_of(f) then return f, 1 end
    for _, r in ipairs(records(f)) do
      if r.stage == stage and r.name == name then return f, r.line end
    end
  end
end

local eqno = 0
local function equation(p)
  local math, tail = nil, ""
  for _, x in ipairs(p.content) do
    if x.t == "Math" and x.mathtype == "DisplayMath" then math = x; tail = ""
    elseif math then tail = tail .. text(x) end
  end
  local id, rest = tail:match("^%s*{#(eq:[%w-]+)%s*(.-)}$")
  if not math then return nil end
  if not id then
    if tail:match("{#") then die("cannot read the label in %q", tail) end
    return nil
  end
  eqno = eqno + 1
  local no = "(" .. chapter .. "." .. eqno .. ")"
  if collect then order[#order + 1] = { id, no } end
  local number = pandoc.Str(no)
  local held = rest:match("held=(%S+)")
  if held and not collect then
    local f, i = find_test(held)
    if f then
      number = pandoc.Link({ number }, string.format("src/%s.html#L%d", f, i),
                           "held by " .. held)
    else die("%s: no test %s", id, held) end
  elseif not collect then
    io.stderr:write("book: ", page, ": no test is named for ", id, "\n")
  end
  return pandoc.Div({ pandoc.Para { math }, pandoc.Plain { pandoc.Span({ number }, { class = "eqno" }) } },
                    pandoc.Attr(id, { "equation" }))
end

-- ---- rules for the text -------------------------------------------------------------

-- Returns true if a paragraph has a formula or cites an equation. The paragraph before
-- each function of ref/ must do so.
local function names_symbols(b)
  local yes = false
  pandoc.Div({ b }):walk {
    Math = function() yes = true end,
    Cite = function(c) if c.citations[1].id:match("^eq:") then yes = true end end,
  }
  return yes
end

local function check_prose(blocks)
  local ready = false
  for _, b in ipairs(blocks) do
    local inner = b.t == "Div" and b.classes:includes("pair") and b.content or { b }
    for _, x in ipairs(inner) do
      if x.t == "CodeBlock" and x.classes:includes("include") then
        local f = x.attributes.file or ""
        if f:match("^ref/.*%.c$") and x.attributes.fn and not ready then
          die("%s: the paragraph before has no formula and cites no equation", x.attributes.fn)
        end
        ready = false
      elseif x.t == "Header" then ready = false
      elseif names_symbols(x) then ready = true end
    end
  end
end

-- ---- the pass over a page -----------------------------------------------------------

-- Makes "erratum 7" a link to row 7 of appendix A.
local function errata_links(inlines)
  for i = 1, page == "A-errata" and 0 or #inlines - 2 do
    local a, n = inlines[i], inlines[i + 2]
    if a.t == "Str" and (a.text:match("^%(?errat[au]m?$") or a.text == "and" and i > 2 and inlines[i - 2].t == "Link")
       and inlines[i + 1].t ~= "Str" and n.t == "Str" then
      local no, rest = n.text:match("^(%d+)(.*)$")
      if no and tonumber(no) <= 38 then
        inlines[i + 2] = pandoc.Span { pandoc.Link({ pandoc.Str(no) }, "A-errata.html#erratum-" .. no), pandoc.Str(rest) }
      end
    end
  end
  for i, x in ipairs(inlines) do          -- capital letter at the start of a sentence
    local before = inlines[i - 2]
    if x.t == "Link" and x.classes:includes("xref")
       and (i == 1 or inlines[i - 1].t == "Space" and before and before.t ~= "Link" and before.t ~= "Math" and text(before):match("[.?!]$")) then
      x.content = { pandoc.Str((text(x):gsub("^%l", string.upper))) }
    end
  end
  return inlines
end

-- Keeps a punctuation mark on the line of the formula before it, and an opening bracket
-- on the line of the formula after it.
local function unbroken(inlines)
  for i = #inlines - 1, 1, -1 do
    local a, b = inlines[i], inlines[i + 1]
    if a.t == "Math" and a.mathtype == "InlineMath" and b.t == "Str" and b.text:match("^[.,;:)?]")
       or a.t == "Str" and a.text:match("%($") and (b.t == "Span" and b.classes:includes("unbroken") or b.t == "Math" and b.mathtype == "InlineMath") then
      inlines[i] = pandoc.Span({ a, b }, { class = "unbroken" })
      inlines:remove(i + 1)
    end
  end
  return inlines
end

-- Keeps a number and its unit on one line. Removes the brackets of an equation's number
-- if the text has brackets around the reference.
local units = { ["%"] = 1, ms = 1, ["µs"] = 1, s = 1, MB = 1, GB = 1, KiB = 1, MiB = 1, GiB = 1, ["GB/s"] = 1, ["TB/s"] = 1, ["TFLOP/s"] = 1, MFLOP = 1 }
local function kept_together(inlines)
  for i, x in ipairs(inlines) do
    local a, b = inlines[i - 1], inlines[i + 1]
    if (x.t == "Space" or x.t == "SoftBreak") and a and b and b.t == "Str" and units[b.text:match("^[^.,;:)]*")]
       and (a.t == "Str" and a.text:match("%d$") or a.t == "Span" and a.classes:includes("val")
            or a.t == "Strong" and text(a):match("%d$")) then
      inlines[i] = pandoc.Str("\u{a0}")
    end
    if x.t == "Space" and a and b and a.t == "Str" and b.t == "Str"        -- T = 8192
       and (b.text == "=" and a.text:match("^%u%u?$") or a.text == "=" and b.text:match("^%d")) then
      inlines[i] = pandoc.Str("\u{a0}")
    end
    if x.t == "Link" and x.classes:includes("xref") and a and b and a.t == "Str" and b.t == "Str"
       and a.text:match("%($") and b.text:match("^%)") then
      x.content = { pandoc.Str((text(x):gsub("^%((.*)%)$", "%1"))) }
    end
  end
  return inlines
end

-- Prevents line breaks at the hyphen of a date, a power of ten or a model's name.
local function with_hyphen(s)
  if #s.text < 16 and (s.text:match("%d%-%d") or s.text:match("%a%-%d")) then
    return pandoc.Span({ s }, { class = "unbroken" })
  end
end

-- Allows line breaks in a long name after underscores and slashes. Prevents line breaks
-- after the hyphens of a command or a date.
local function breakable(c)
  local hyphens, long = c.text:match("%-"), c.text:match("[_/]") and #c.text >= 14
  if not hyphens and not long then return nil end
  local s = c.text:gsub("&", "&amp;"):gsub("<", "&lt;")
  if long then s = s:gsub("([_/]+)", "%1<wbr>") end
  if hyphens then
    s = s:gsub("<wbr>", "\n"):gsub("[^%s]*%-[^%s]*", '<span class="unbroken">%0</span>'):gsub("\n", "<wbr>")
  end
  return pandoc.RawInline("html", "<code>" .. s .. "</code>")
end

-- Moves each answer of the Div "answers" below its exercise. The lists of answers and
-- exercises must have the same length.
local function fold_answers(doc)
  local exercises
  for i, b in ipairs(doc.blocks) do
    if b.t == "Header" and text(b) == "Exercises" then exercises = "none" end
    if exercises == "none" and b.t == "OrderedList" then exercises = b end
    if b.t == "Div" and b.classes:includes("answers") then
      local list = b.content[1]
      if type(exercises) ~= "userdata" and type(exercises) ~= "table" then die("answers without exercises") end
      if #b.content ~= 1 or list.t ~= "OrderedList" or #list.content ~= #exercises.content then
        die("%d exercises and %d answers", #exercises.content, list.t == "OrderedList" and #list.content or 0)
      end
      for j, item in ipairs(list.content) do
        local own = exercises.content[j]
        own[#own + 1] = pandoc.RawBlock("html", '<details class="answer"><summary>Answer</summary>')
        for _, x in ipairs(item) do own[#own + 1] = x.t == "Plain" and pandoc.Para(x.content) or x end
        own[#own + 1] = pandoc.RawBlock("html", "</details>")
        exercises.content[j] = own
      end
      doc.blocks:remove(i)
      return doc
    end
  end
  if exercises then die("exercises without answers: write '::: answers', a list of the same length and ':::' after the list") end
  return doc
end

-- Hides the content of a Div "folded" until a click on its title.
local function folded(doc)
  return doc:walk { Div = function(d)
    if not d.classes:includes("folded") then return nil end
    local blocks = pandoc.List({ pandoc.RawBlock("html", '<details class="folded"><summary>' .. (d.attributes.title or "The numbers") .. "</summary>") })
    blocks:extend(d.content)
    blocks:insert(pandoc.RawBlock("html", "</details>"))
    return blocks
  end }
end

-- Appends the list of references to a chapter that cites something.
local function with_references(doc)
  local cites = false
  doc:walk { Cite = function() cites = true end }
  if cites then
    doc.blocks:insert(pandoc.Header(1, "References", { "references", { "unnumbered" } }))
    doc.blocks:insert(pandoc.Div({}, { "refs" }))
  end
  return doc
end

-- Makes a block of a paragraph that is one `name`{.include ...} or another such code.
local function as_block(p)
  local c = #p.content == 1 and p.content[1]
  if not c or c.t ~= "Code" then return nil end
  for _, class in ipairs { "include", "example", "results", "table", "labs" } do
    if c.classes:includes(class) then
      c.attributes[class == "example" and "name" or "file"] = c.text
      return pandoc.CodeBlock("", c.attr)
    end
  end
  return c.classes:includes("kernels") and pandoc.Div(pandoc.Plain { pandoc.Str(c.text) }, c.attr) or nil
end

local functions
local sec = 0
local function weave(doc)
  local _, lead = doc.blocks:find_if(function(b) return b.t == "Para" end)
  if lead then doc.blocks[lead] = pandoc.Div({ doc.blocks[lead] }, { class = "lead" }) end
  doc = doc:walk { Para = as_block, Plain = as_block }
  in_chapter = doc.meta.chapter ~= nil
  chapter = text(doc.meta.chapter or "0"):gsub("^0(%d)", "%1")
  page = text(doc.meta.page or "index")
  if not collect and labels then
    for l in io.lines(labels) do
      local id, p, t = l:match("^(%S+)\t(%S+)\t(.+)$")
      if id then
        if known[id] then die("label %s is defined in %s and in %s", id, known[id].page, p) end
        known[id] = { page = p, text = t }
      end
    end
  end
  if collect and page:match("^[%u%d]") then
    local called = doc.meta.called and text(doc.meta.called)
    order[#order + 1] = { "ch:" .. page:match("^(%w+)"), called or (chapter:match("%d") and "chapter " or "appendix ") .. text(doc.meta.chapter or "0") }
  end
  if not collect then check_prose(doc.blocks) end
  doc = doc:walk {
    traverse = "topdown",
    Header = function(h)
      if h.level == 1 and page:match("^[%u%d]") and not h.classes:includes("unnumbered") then
        sec = sec + 1
        local no = chapter .. "." .. sec
        if collect and h.identifier:match("^sec:") then
          order[#order + 1] = { h.identifier, "section " .. no }
        end
        table.insert(h.content, 1, pandoc.Span({ pandoc.Str(no) }, { class = "no" }))
        table.insert(h.content, 2, pandoc.Space())
      elseif h.level > 1 and collect and h.identifier:match("^sec:") then
        order[#order + 1] = { h.identifier, "section " .. chapter .. "." .. sec }
      end
      return h
    end,
    CodeBlock = function(cb)
      if collect then return nil end
      if cb.classes:includes("include") then
        local code = include(cb)
        if not cb.attributes.fold then return code, false end
        local title = "Code: " .. (cb.attributes.fn or cb.attributes.region or cb.attributes.file)
        return pandoc.Div({ code }, pandoc.Attr("", { "folded" }, { title = title })), false
      end
      if cb.classes:includes("example") then return example(cb), false end
      if cb.classes:includes("table") then return tsv(cb), false end
      if cb.classes:includes("results") then return results(cb), false end
      if cb.classes:includes("labs") then return lab_table(), false end
      if cb.classes:includes("docstrings") then return docstrings(), false end
    end,
    Math = function(m) return math_of(m) end,
    Para = function(p)
      if #p.content == 1 and p.content[1].t == "Image" and p.content[1].src:match("%.%a+$") then
        return figure(p.content[1], p.content[1].identifier), false
      end
      local d = equation(p)
      if d then return d:walk { Math = math_of }, false end
    end,
    Div = function(d)
      if collect then return nil end
      if d.classes:includes("kernels") then return kernels(d), false end
      if d.classes:includes("errata") then return errata(d) end
    end,
    RawInline = function(r) die("raw %s: %s", r.format, r.text) end,
    RawBlock = function(r)
      if r.format == "html" and (r.text:match("^<!%-%-") or r.text:match("^<div class=\"[sp]")) then return nil end
      if r.format == "tex" and r.text:match("^\\newcommand") then return {} end
      die("raw %s: %s", r.format, r.text:sub(1, 60))
    end,
  }
  if collect then
    for _, o in ipairs(order) do io.stdout:write(o[1], "\t", page, "\t", o[2], "\n") end
    os.exit(0)
  end
  doc = doc:walk {
    Cite = function(c)
      local id = #c.citations == 1 and c.citations[1].id
      if not id or not id:match("^%l+:") then return nil end
      local k = known[id] or die("no label %s", id)
      local href = (k.page == page and "" or k.page .. ".html") .. "#" .. id
      if id:match("^ch:") then href = k.page .. ".html" end
      return pandoc.Link({ pandoc.Str(k.text) }, href, "", { class = "xref" })
    end,
    Span = function(s)
      if s.classes:includes("ms") then return recorded(text(s)) end
      if not s.classes:includes("val") then return nil end
      local d, e = digits_of(value(text(s)))
      local minus = function(x) return (x:gsub("^%-", "\u{2212}")) end
      local shown_as = pandoc.List({ pandoc.Str(minus(d)) })
      if e then
        shown_as = pandoc.List({ pandoc.Str(d == "1" and "10" or minus(d) .. "\u{b7}10"), pandoc.Superscript({ pandoc.Str(minus(e)) }) })
      end
      return pandoc.Span(shown_as, { class = "val" })
    end,
    Code = function(c)
      local name = c.text:match("^(ref_[%w_]+)%(?%)?$") or c.text:match("^(kcp_[%w_]+)%(?%)?$")
      if name and not name:match("_$") and name ~= "kcp_torch" then  -- the Python package
        if not functions then
          functions = {}
          for l in io.popen("awk -f book/functions.awk ref/*.c ref/core/*.c comm/*.c comm/*/*.c"):lines() do
            local f, n, line = l:match("^(%S+)\t(%S+)\t(%d+)$")
            functions[n] = functions[n] or { f, line }
          end
        end
        local at = functions[name]
        if at then return pandoc.Link({ c }, string.format("src/%s.html#L%s", at[1], at[2])) end
        for _, h in ipairs { "ref/kcp.h", "ref/comm.h", "ref/layer.h", "ref/stages.h", "ref/ref.h", "ref/moves.h" } do
          for i, l in ipairs(lines_of(h) or {}) do
            if l:find(name .. "%f[%W]") then return pandoc.Link({ c }, string.format("src/%s.html#L%d", h, i)) end
          end
        end
        die("no function %s in ref/ or comm/", name)
      end
      local f = c.text:match("^%l+/[%w_./-]+%.[chu]+$") or c.text:match("^%l+/[%w_./-]+%.[aljm][uwsk]a?$")
      if f then
        if not lines_of(f) then die("no file %s", f) end
        if f:match("%.[ch]u?h?$") then return pandoc.Link({ c }, "src/" .. f .. ".html") end
      end
      return nil
    end,
  }
  doc.blocks:extend(labs_of_chapter(text(doc.meta.chapter or "-")))
  doc = doc:walk { Inlines = errata_links }
  doc = doc:walk { Table = function(t)      -- book.css widens the first column of a table of cases
    local head = t.head.rows[1] and t.head.rows[1].cells[1]
    if head and text(head.contents) == "case" then t.attr.classes:insert("cases"); return t end
  end }
  doc = doc:walk { Inlines = kept_together }
  doc = doc:walk { Inlines = unbroken, Code = breakable, Str = with_hyphen }
  doc = folded(fold_answers(with_references(doc)))
  for _, path in ipairs(doc.meta.files or {}) do on_page:insert(text(path)) end
  doc.meta.files = on_page
  for suffix, list in pairs { lines = ranges, shown = shown } do
    local f = assert(io.open(out .. "/" .. page .. "." .. suffix, "w"))
    for _, s in ipairs(list) do f:write(s, "\n") end
    f:close()
  end
  return doc
end

return { { Pandoc = weave } }
