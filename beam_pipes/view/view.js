// The page of `beam-pipes view`. Everything from data is set as text (`textContent`), never as markup; the policy of the
// server refuses anything else (`require-trusted-types-for`).
"use strict";

const ROW = 28, MOST_PIXELS = 8_000_000, AHEAD = 40, BLOCK = 100, TILES = 24;
const at = (id) => document.getElementById(id);
const state = { overview: null, view: "Rows", row: null, boxes: "left, top, right, bottom", watch: null };

function el(tag, options = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (name === "text") made.textContent = value;
    else if (name === "class") made.className = value;
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...inside.filter((each) => each !== null));
  return made;
}
function svg(tag, options) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(options)) made.setAttribute(name, value);
  return made;
}
const count = (number) => number.toLocaleString("en-US");
const address = (name, asked) => `api/${name}?${new URLSearchParams(asked)}`;
async function ask(name, asked = {}) {
  const answer = await fetch(address(name, { snapshot: at("snapshot").value, ...asked }));
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}
function question() {
  const asked = { split: at("split").value };
  for (const name of ["where", "search", "sort"]) if (at(name).value) asked[name] = at(name).value;
  if (at("sort").value && at("descending").checked) asked.descending = "1";
  return asked;
}
const split = () => state.overview.splits.find((each) => each.name === at("split").value);
const columns = () => (split().features.length ? split().features : [{ name: "record", type: split().kind }]);
function tell(text, bad = false) { const told = at("told"); told.className = bad ? "bad" : "soft"; told.textContent = text; }
const complain = (error) => tell(error.message, true);

// Views.

const VIEWS = { Rows: showRows, Pictures: showTiles, Charts: showCharts, Batches: showStep, "Dead letters": showDead, Duplicates: showDuplicates, Files: showFiles, Build: showBuild };
const CHOOSING = new Set(["Rows", "Pictures", "Charts"]);

async function show(name = state.view) {
  clearTimeout(state.watch);
  state.view = name;
  for (const button of at("views").children) {
    if (button.textContent === name) button.setAttribute("aria-current", "page"); else button.removeAttribute("aria-current");
  }
  at("asking").hidden = !CHOOSING.has(name);
  at("stage").replaceChildren();
  tell("");
  if (state.overview === null && name !== "Build") return;
  const mine = (state.turn = {});
  try { await VIEWS[name](() => state.turn === mine); } catch (error) { if (state.turn === mine) complain(error); }
}

async function open(snapshot = "") {
  at("views").replaceChildren(...Object.keys(VIEWS).map((name) => el("button", { type: "button", text: name, on: { click: () => show(name) } })));
  try {
    const answer = await fetch(address("cache", { snapshot }));
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    state.overview = found;
  } catch (error) {
    await show("Build");
    complain(error);
    return;
  }
  const found = state.overview, before = at("split").value;
  document.title = `${found.name} · beam-pipes view`;
  at("name").textContent = found.name;
  at("about").textContent = found.path;
  const option = (value, text) => el("option", { value, text });
  at("snapshot").replaceChildren(...found.snapshots.map((each) => option(each, each)));
  at("snapshot").value = found.snapshot;
  at("split").replaceChildren(...found.splits.map((each) => option(each.name, `${each.name}: ${count(each.records)} records`)));
  at("split").value = found.splits.some((each) => each.name === before) ? before : (found.splits.find((each) => each.name === "train") || found.splits[0] || { name: "" }).name;
  opened();
  await show();
}
function opened() {
  at("sort").replaceChildren(el("option", { value: "", text: "(as stored)" }), ...(split() ? split().features.map((each) => el("option", { value: each.name, text: each.name })) : []));
  close();
}

// Rows: a window of what can be scrolled. Browsers end at about 16 million pixels, so that the height is capped, and
// scrolling by less than a window moves by as many rows as it shows.

async function showRows(isMine) {
  const asked = question(), shown = columns(), blocks = new Map();
  let total = 0, top = 0, scrolledTo = 0, chosen = 0, settle = null;
  const body = el("div", { role: "rowgroup", class: "body" });
  const header = el("div", { role: "row", class: "head", "aria-rowindex": 1 }, el("div", { role: "columnheader", text: "record" }),
    ...shown.map((each) => el("div", { role: "columnheader", text: each.name, title: each.type, "aria-sort": asked.sort === each.name ? (asked.descending ? "descending" : "ascending") : null })));
  const grid = el("div", { role: "grid", class: "grid", tabindex: 0, "aria-label": `Rows of ${asked.split}`, "aria-colcount": shown.length + 1 }, el("div", { role: "rowgroup", class: "heads" }, header), body);
  grid.firstChild.style.cssText = "position:sticky;top:0;z-index:2;width:max-content;min-width:100%";
  const more = el("button", { type: "button", text: "Search further", hidden: true });
  at("stage").replaceChildren(grid, more);

  const height = () => Math.min(total * ROW, MOST_PIXELS);
  const fits = () => Math.max(1, Math.floor((grid.clientHeight - ROW) / ROW));
  const last = () => Math.max(0, total - fits());
  const range = () => Math.max(1, height() + ROW - grid.clientHeight);
  function place() { // the scroll bar, where `top` is
    const wanted = last() ? (top / last()) * range() : 0;
    if (Math.abs(wanted - grid.scrollTop) > 1) grid.scrollTop = wanted;
    scrolledTo = grid.scrollTop;
    draw();
  }
  async function fetched(block) {
    if (blocks.has(block)) return;
    blocks.set(block, null);
    if (blocks.size > 60) for (const old of [...blocks.keys()].slice(0, 20)) if (Math.abs(old - block) > 3) blocks.delete(old);
    try { take(await ask("rows", { ...asked, start: block * BLOCK, count: BLOCK }), block); } catch (error) { if (isMine()) { blocks.delete(block); complain(error); } }
  }
  function take(found, block) {
    if (!isMine()) return;
    blocks.set(block, found.rows);
    total = found.count;
    body.style.height = `${height()}px`;
    grid.setAttribute("aria-rowcount", total + 1);
    const where = split().searched.join(", ");
    const looked = asked.search ? `; searched ${count(found.looked)} of ${count(found.of)} records (${where})` : "";
    tell(`${count(total)} of ${count(split().records)} records${looked}`);
    more.hidden = found.looked >= found.of;
    draw();
  }
  function draw() {
    if (!isMine()) return;
    const first = Math.max(0, Math.floor(top) - 5), end = Math.min(total, Math.floor(top) + Math.min(fits() + 10, AHEAD * 3));
    const made = [];
    for (let place = first; place < end; place++) {
      const block = Math.floor(place / BLOCK), rows = blocks.get(block);
      if (rows === undefined) fetched(block);
      const row = rows && rows[place - block * BLOCK];
      const cells = !row ? [el("div", { role: "gridcell", text: "…" })] : row.error ? [el("div", { role: "gridcell", class: "bad", text: row.error })] : row.cells.map((text) => el("div", { role: "gridcell", text: text.slice(0, 160) }));
      const line = el("div", { role: "row", class: place === chosen ? "row on" : "row", id: `row-${place}`, "aria-rowindex": place + 2, "aria-selected": place === chosen ? "true" : "false", on: { click: () => { choose(place); if (row) openRecord(row.row); } } },
        el("div", { role: "rowheader", text: row ? count(row.row) : "" }), ...cells);
      line.style.top = `${Math.round(grid.scrollTop + (place - top) * ROW)}px`;
      made.push(line);
    }
    body.replaceChildren(...made);
    if (chosen >= first && chosen < end) grid.setAttribute("aria-activedescendant", `row-${chosen}`); else grid.removeAttribute("aria-activedescendant");
  }
  function choose(place) {
    chosen = Math.max(0, Math.min(total - 1, place));
    if (chosen < top) top = chosen; else if (chosen >= top + fits()) top = Math.min(last(), chosen - fits() + 1);
    placeBar();
  }
  function placeBar() { clearTimeout(settle); place(); }
  grid.addEventListener("scroll", () => {
    const moved = grid.scrollTop - scrolledTo;
    scrolledTo = grid.scrollTop;
    if (!moved) return draw();
    const exact = total * ROW <= MOST_PIXELS || Math.abs(moved) >= grid.clientHeight;
    top = exact ? (grid.scrollTop / range()) * last() : top + moved / ROW;
    top = Math.max(0, Math.min(last(), top));
    draw();
    clearTimeout(settle);
    if (!exact) settle = setTimeout(place, 200);
  });
  grid.addEventListener("keydown", (event) => {
    const to = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, PageDown: chosen + fits(), PageUp: chosen - fits(), Home: 0, End: total - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); choose(to); }
    if (event.key === "Enter") { const rows = blocks.get(Math.floor(chosen / BLOCK)), row = rows && rows[chosen % BLOCK]; if (row) openRecord(row.row, true); }
  });
  more.addEventListener("click", async () => {
    more.disabled = true;
    try { const found = await ask("rows", { ...asked, start: 0, count: BLOCK, further: "1" }); if (asked.sort) blocks.clear(); else for (const block of [...blocks.keys()]) if ((block + 1) * BLOCK > total) blocks.delete(block); take(found, 0); } catch (error) { complain(error); }
    more.disabled = false;
  });
  new ResizeObserver(() => isMine() && draw()).observe(grid);
  blocks.set(0, null);
  take(await ask("rows", { ...asked, start: 0, count: BLOCK }), 0);
}

// A record.

function close() { at("panel").hidden = true; at("panel").replaceChildren(); state.row = null; }

// `source`: of a mixture; its record is that of the snapshot which the run reads, of whichever cache.
async function openRecord(row, focus = false, name = at("split").value, source = "") {
  const asked = (state.row = { split: name, row, source });
  let found;
  try { found = await ask("record", asked); } catch (error) { return complain(error); }
  if (state.row !== asked) return;
  const panel = at("panel");
  const leave = () => { close(); const grid = document.querySelector(".grid"); if (grid) grid.focus(); };
  panel.replaceChildren(
    el("div", { class: "line" }, el("h2", { text: `${name}, record ${count(row)}` }), el("button", { type: "button", text: "Close", on: { click: leave } })),
    el("p", { class: "soft", text: `${found.id ? `source ${found.id}; ` : ""}${found.shard}, record ${count(found.number)}, byte ${count(found.offset)}${source === "" ? "" : `; ${found.path}, snapshot ${found.snapshot}`}` }),
    ...(found.error ? [el("p", { class: "bad", text: found.error })] : []),
    ...(found.equal || []).map((text) => el("p", { text })),
    ...features(found));
  if (found.id && state.overview.run) panel.append(stepsOf(found.id));
  panel.onkeydown = (event) => { if (event.key === "Escape") leave(); };
  panel.hidden = false;
  if (focus) panel.focus();
}

function stepsOf(id) {
  const found = el("p", { role: "status" });
  const button = el("button", { type: "button", text: "Which steps read it?", on: { click: async () => {
    found.textContent = "looking…";
    try {
      const { steps, last } = await ask("steps", { id });
      found.replaceChildren(steps.length ? "steps " : `none up to step ${count(last)}`, ...steps.map((step) => el("button", { type: "button", text: count(step), on: { click: () => { state.step = step; show("Batches"); } } })));
    } catch (error) { found.textContent = error.message; }
  } } });
  return el("div", {}, el("h3", { text: "Run" }), button, found);
}

const isPicture = (each) => each.medium === "picture";

function features(record) {
  const masks = record.features.filter((each) => each.medium === "mask"), boxes = record.features.filter((each) => each.boxes);
  return record.features.map((each) => {
    const parts = [el("h3", {}, each.name, " ", el("span", { class: "soft", text: each.type }))];
    if (isPicture(each) && record.split) parts.push(picture(record, each, masks, boxes, 640), ...(boxes.length ? [boxesAre()] : []));
    else if (each.medium === "sound" && record.split) parts.push(sound(record, each));
    if (each.class !== undefined) parts.push(el("p", {}, el("b", { text: each.class })));
    if (each.tokens) parts.push(tokens(each));
    parts.push(el("p", { class: "values", text: each.text }));
    return el("div", {}, ...parts);
  });
}

const placeOf = (record) => ({ snapshot: at("snapshot").value, split: record.split, row: record.row, source: record.source ?? "" });

function picture(record, feature, masks, boxes, side) {
  const of = (name) => address("media", { ...placeOf(record), feature: name, side });
  const [width, height] = feature.size.length ? feature.size : [1, 1];
  const shown = el("div", { class: "picture" }, el("img", { src: of(feature.name), alt: `${feature.name} of record ${record.row}${record.caption ? `: ${record.caption}` : ""}`, loading: "lazy" }),
    ...masks.map((mask) => el("img", { class: "over", src: of(mask.name), alt: `${mask.name}, over the picture`, loading: "lazy" })));
  if (boxes.length && feature.size.length && state.boxes !== "not shown") {
    const over = svg("svg", { class: "over", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${boxes.reduce((sum, each) => sum + each.boxes.length, 0)} boxes` });
    for (const each of boxes.flatMap((feature) => feature.boxes)) {
      const scaled = each.every((value) => value >= 0 && value <= 1) ? [width, height, width, height] : [1, 1, 1, 1];
      let [a, b, c, d] = state.boxes.startsWith("top") ? [each[1], each[0], each[3], each[2]] : each;
      [a, b, c, d] = [a * scaled[0], b * scaled[1], c * scaled[2], d * scaled[3]];
      if (state.boxes.endsWith("height")) [c, d] = [a + c, b + d];
      over.append(svg("rect", { x: a, y: b, width: Math.max(0, c - a), height: Math.max(0, d - b) }));
    }
    shown.append(over);
  }
  return shown;
}
function boxesAre() {
  const choices = ["left, top, right, bottom", "left, top, width, height", "top, left, bottom, right", "not shown"];
  const select = el("select", { on: { change: () => { state.boxes = select.value; if (state.row) openRecord(state.row.row, false, state.row.split, state.row.source); if (state.view === "Pictures") show(); } } }, ...choices.map((text) => el("option", { text })));
  select.value = state.boxes;
  return el("label", {}, "Boxes are ", select);
}

function sound(record, feature) {
  const source = address("media", { ...placeOf(record), feature: feature.name });
  const wave = svg("svg", { class: "wave", viewBox: "0 -1 600 2", preserveAspectRatio: "none", role: "img", "aria-label": `Waveform of ${feature.name}` });
  const told = el("p", { class: "soft" });
  fetch(source).then(async (answer) => {
    if (!answer.ok) throw new Error((await answer.json()).error);
    const file = await answer.arrayBuffer(), rate = new DataView(file).getUint32(24, true), samples = new Int16Array(file.slice(44));
    told.textContent = `${(samples.length / rate).toFixed(2)} s at ${count(rate)} Hz`;
    let path = "";
    for (let x = 0; x < 600; x++) {
      let low = 0, high = 0;
      for (let k = Math.floor(x * samples.length / 600); k < (x + 1) * samples.length / 600; k++) { low = Math.min(low, samples[k]); high = Math.max(high, samples[k]); }
      path += `M${x} ${low / 32768}V${high / 32768 + 0.005}`;
    }
    wave.append(svg("path", { d: path }));
  }).catch((error) => { told.className = "bad"; told.textContent = error.message; });
  return el("div", {}, wave, el("audio", { controls: true, src: source, preload: "none", "aria-label": `${feature.name} of record ${record.row}` }), told);
}

function tokens(feature) {
  const line = el("p", { class: "values", "aria-label": `Tokens of ${feature.name}`, role: "group" });
  let segment = null, words = 0;
  for (const each of feature.tokens) {
    if (each.segment !== undefined && each.segment !== segment) { segment = each.segment; line.append(el("span", { class: "soft", text: segment ? ` segment ${segment}: ` : " padding: " })); }
    const kind = each.segment === undefined ? (words++ % 2 ? "one" : "") : each.segment ? (each.segment % 2 ? "one" : "two") : "";
    const out = each.loss === 0;
    line.append(el("span", { class: `token ${kind}${out ? " out" : ""}`, title: `id ${each.ids.join(", ")}${out ? ", not in the loss" : ""}`, text: each.text }));
  }
  const said = [...(feature.more_tokens ? [`and ${count(feature.more_tokens)} more tokens`] : []), ...(feature.tokens.some((each) => each.loss === 0) ? ["underlined: not in the loss"] : []), ...(state.overview.tokens ? [] : ["ids: start view with --tokens TOKENIZER to read them"])];
  return el("div", {}, line, ...(said.length ? [el("p", { class: "soft", text: said.join("; ") })] : []));
}

// Pictures (or, where there are none, what a row says), a page of tiles at a time.

async function showTiles(isMine) {
  const list = el("ul", { class: "tiles" }), more = el("button", { type: "button", text: "More" });
  at("stage").replaceChildren(list, more);
  let next = 0;
  async function load() {
    const found = await ask("tiles", { ...question(), start: next, count: TILES });
    if (!isMine()) return;
    next += found.tiles.length;
    for (const tile of found.tiles) {
      const seen = tile.features.filter(isPicture), masks = tile.features.filter((each) => each.medium === "mask"), boxes = tile.features.filter((each) => each.boxes), heard = tile.features.filter((each) => each.medium === "sound");
      const said = tile.caption || (seen.length ? "" : (tile.features.find((each) => each.text) || { text: "" }).text.slice(0, 200));
      list.append(el("li", {}, ...seen.map((each) => picture(tile, each, masks, boxes, 320)), ...heard.map((each) => sound(tile, each)), el("p", { text: tile.error || said }), el("button", { type: "button", text: `record ${count(tile.row)}`, on: { click: () => openRecord(tile.row, true) } })));
    }
    tell(`${count(next)} of ${count(found.count)} records`);
    more.hidden = next >= found.count || !found.tiles.length;
    if (next <= TILES && found.tiles.some((each) => each.features.some((one) => one.boxes))) at("stage").prepend(boxesAre());
  }
  more.addEventListener("click", () => load().catch(complain));
  await load();
}

// Histograms; brushing chooses rows.

async function showCharts(isMine) {
  const charts = el("div", { class: "charts" });
  at("stage").replaceChildren(charts);
  tell("Click a bar, or draw over several, to keep these records. Shift and Enter extends from the last bar.");
  for (const { name } of split().features) {
    let found;
    try { found = await ask("histogram", { ...question(), feature: name }); } catch (error) { if (isMine()) complain(error); continue; }
    if (!isMine()) return;
    if (found.bars.length) charts.append(chart(found));
  }
}
function chart(found) {
  const bars = el("div", { class: "bars", role: "group", "aria-label": `Histogram of ${found.feature}` });
  let from = null;
  const label = (bar) => `${bar.label}: ${count(bar.count)}`;
  const words = el("p", { class: "soft", text: `${found.bars[0].label} … ${found.bars[found.bars.length - 1].label}` });
  const mark = (a, b) => { [...bars.children].forEach((bar, number) => bar.classList.toggle("on", number >= Math.min(a, b) && number <= Math.max(a, b))); };
  function choose(a, b) {
    const [first, end] = [Math.min(a, b), Math.max(a, b)];
    const some = found.bars.slice(first, end + 1);
    const kept = found.kind === "values" ? some.map((bar) => bar.only).join(" or ") : [some[0].lower, some[some.length - 1].upper].filter(Boolean).join(" and ");
    from = null;
    if (!kept) return;
    const before = at("where").value.trim();
    at("where").value = before ? `(${before}) and (${kept})` : kept;
    close();
    show();
  }
  found.bars.forEach((bar, number) => {
    const fill = el("i");
    fill.style.height = `${Math.max(1, bar.share * 100)}%`;
    const say = () => { words.textContent = label(bar); };
    bars.append(el("button", { type: "button", title: label(bar), "aria-label": label(bar), on: {
      pointerdown: (event) => { event.preventDefault(); if (event.target.hasPointerCapture(event.pointerId)) event.target.releasePointerCapture(event.pointerId); from = number; mark(number, number); },
      pointerenter: () => { say(); if (from !== null) mark(from, number); },
      pointerup: () => { if (from !== null) choose(from, number); },
      focus: say,
      keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); if (event.shiftKey && bars.last !== undefined) choose(bars.last, number); else { if (event.shiftKey) { bars.last = number; mark(number, number); } else choose(number, number); } } },
    } }, fill));
  });
  bars.addEventListener("pointerleave", () => { from = null; mark(1, 0); });
  const sampled = found.records < found.of ? `${count(found.records)} of ${count(found.of)} records` : `${count(found.of)} records`;
  return el("section", { "aria-label": found.feature }, el("h2", {}, found.feature, " ", el("span", { class: "soft", text: sampled })), bars, words);
}

// Steps of a run.

async function showStep(isMine) {
  const { run } = state.overview;
  if (!run) { tell("Which run? Start view with --state STATE.json and --batch-size of the run, or with its options (--split, --batch-size, --seed, --shuffle)."); return; }
  const number = el("input", { type: "number", min: 0, value: state.step ?? state.overview.step }), rows = el("div");
  const form = el("form", { class: "line", on: { submit: (event) => { event.preventDefault(); load().catch(complain); } } }, el("label", {}, "Step ", number), el("button", { text: "Show" }));
  at("stage").replaceChildren(form, el("details", {}, el("summary", { text: "What the loader reads" }), el("pre", { text: run })), rows);
  async function load(start = 0) {
    state.step = Number(number.value);
    const found = await ask("step", { step: state.step, start });
    if (!isMine()) return;
    tell(`step ${count(found.step)}, epoch ${count(found.epoch)}: ${count(found.count)} rows`);
    if (!start) rows.replaceChildren();
    rows.querySelector(".more")?.remove();
    for (const row of found.rows) {
      rows.append(el("section", { class: "letter", "aria-label": `Row ${row.number}` }, el("h2", { text: `Row ${row.number}` }),
        el("div", { class: "line" }, ...row.records.map((each) => el("button", { type: "button", text: `${each.segment === null ? "" : `segment ${each.segment}: `}${each.id}`, title: `${each.source ? `source ${each.source} of the mixture, ` : ""}${each.split}, record ${each.row}`, on: { click: () => openRecord(each.row, true, each.split, each.source) } }))),
        ...features({ ...row, split: null })));
    }
    const end = start + found.rows.length;
    if (end < found.count) rows.append(el("button", { type: "button", class: "more", text: "More rows", on: { click: () => load(end).catch(complain) } }));
  }
  await load();
}

// What was dropped.

async function showDead(isMine) {
  const list = el("div");
  at("stage").replaceChildren(list);
  async function load(start) {
    const found = await ask("dead", { start });
    if (!isMine()) return;
    tell(`${count(state.overview.dead)} dead letters. ${state.overview.dead ? `After a repair: ${found.replay}` : ""}`);
    list.querySelector(".more")?.remove();
    for (const each of found.letters) list.append(el("section", { class: "letter", "aria-label": each.id }, el("h2", { text: each.id }), el("p", { class: "bad", text: `${each.stage}: ${each.error}` }), el("pre", { text: each.traceback }), el("h3", { text: "Record" }), el("pre", { text: each.record }), el("h3", { text: "Run it again" }), el("code", { text: found.replay })));
    const end = start + found.letters.length;
    if (found.letters.length && end < state.overview.dead) list.append(el("button", { type: "button", class: "more", text: "More", on: { click: () => load(end).catch(complain) } }));
  }
  await load(0);
}

async function showDuplicates(isMine) {
  const list = el("div");
  at("stage").replaceChildren(list);
  async function load(start) {
    const found = await ask("duplicates", { start });
    if (!isMine()) return;
    if (!found.pairs.length) { tell(start ? "No more." : "The build has dropped no duplicates. Equal contents that are left are named beside each record."); return; }
    tell(found.declared ? "Kept, and dropped as its duplicate." : "Kept, and dropped as its duplicate. With --declaration, both are read from the source.");
    list.querySelector(".more")?.remove();
    for (const pair of found.pairs) {
      const [kept, removed] = pair.sides;
      list.append(el("section", { class: "pair", "aria-label": `${removed.id}: ${pair.reason}` },
        el("div", {}, el("h2", { text: `kept: ${kept.id}` }), ...(kept.source ? [el("pre", { text: kept.source })] : pair.kept.flatMap(features)), ...(pair.kept.length ? [el("button", { type: "button", text: `record ${count(pair.kept[0].row)}`, on: { click: () => openRecord(pair.kept[0].row, true, pair.kept[0].split) } })] : [])),
        el("div", {}, el("h2", { text: `dropped: ${removed.id}` }), el("p", { class: "soft", text: `${pair.reason}, similarity ${pair.similarity.toFixed(2)}` }), el("pre", { text: removed.source || "not in the cache" }))));
    }
    list.append(el("button", { type: "button", class: "more", text: "More", on: { click: () => load(start + found.pairs.length).catch(complain) } }));
  }
  await load(0);
}

function table(name, headings, rows) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, el("table", {}, el("thead", {}, el("tr", {}, ...headings.map((text) => el("th", { scope: "col", text })))), el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((each) => el("td", { class: typeof each === "number" ? "n" : "", text: typeof each === "number" ? count(each) : each })))))));
}

async function showFiles() {
  const { splits, assets } = state.overview, parts = [];
  for (const each of splits) {
    parts.push(el("h2", { text: each.name }), el("p", { text: `${count(each.records)} records, ${count(each.bytes)} bytes, ${count(each.num_shards)} shards${each.taken_down ? `, ${count(each.taken_down)} records taken down` : ""}` }));
    if (each.features.length) parts.push(table(`Features of ${each.name}`, ["feature", "type"], each.features.map((one) => [one.name, one.type])));
    parts.push(el("details", {}, el("summary", { text: `Shards of ${each.name}${each.num_shards > each.shards.length ? ` (the first ${count(each.shards.length)})` : ""}` }), table(`Shards of ${each.name}`, ["shard", "records", "bytes"], each.shards.map((shard, number) => [number, shard.records, shard.bytes]))));
  }
  if (assets.length) parts.push(el("h2", { text: "Assets" }), table("Assets", ["file", "bytes"], assets.map((each) => [each.file, each.bytes])));
  at("stage").replaceChildren(...parts);
}

// A build, while it runs.

async function showBuild(isMine) {
  const found = await ask("status");
  if (!isMine()) return;
  const parts = [el("pre", { text: found.words })];
  if (found.progress) {
    const { shards, shards_done, stages } = found.progress;
    parts.push(el("progress", { max: shards, value: shards_done, "aria-label": "Source shards that are done" }), el("p", { text: `${count(shards_done)} of ${count(shards)} source shards` }),
      table("Stages", ["stage", "in", "kept", "out", "dead", "dropped, by reason"], Object.entries(stages).map(([name, unit]) => [name, unit.in, unit.kept, unit.out, unit.dead, Object.entries(unit.dropped).map(([reason, number]) => `${reason} ${count(number)}`).join(", ")])));
  }
  at("stage").replaceChildren(...parts);
  const published = state.overview ? state.overview.snapshots.at(-1) : null;
  if (found.published && !(state.overview && state.overview.snapshots.includes(found.published))) {
    parts[0].after(el("button", { type: "button", text: `Open snapshot ${found.published}`, on: { click: () => { state.view = "Rows"; open(); } } }));
  }
  if (found.builder !== null || published === null) state.watch = setTimeout(() => { if (isMine()) show("Build"); }, 1000);
}

at("asking").addEventListener("submit", (event) => { event.preventDefault(); close(); show(); });
at("split").addEventListener("change", () => { at("where").value = at("search").value = ""; opened(); show(); });
at("snapshot").addEventListener("change", () => open(at("snapshot").value));
open();
