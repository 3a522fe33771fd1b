// What a page of HTML cannot do by itself: news without reload, the drawing of the cluster, logs, charts, the keyboard.
"use strict";
(() => {
  const $ = (query, within = document) => within.querySelector(query);
  const $$ = (query, within = document) => [...within.querySelectorAll(query)];
  const make = (name, text = "", kind = "") => { const made = document.createElement(name); made.textContent = text; if (kind) made.className = kind; return made; };
  let ahead = Number(document.body.dataset.now) - Date.now() / 1000; // of the controller's clock before ours
  const now = () => Date.now() / 1000 + ahead;

  // -- morphing keeps what is the viewer's: open details, ticks, and whatever draws itself
  const typed = (node) => node.matches("input:not([type=hidden], [type=checkbox], [type=radio], [type=submit]), textarea") && node.value !== node.defaultValue;
  if (window.Idiomorph) {
    const calls = Idiomorph.defaults.callbacks;
    calls.beforeNodeMorphed = (old) => !(old.dataset && "keep" in old.dataset);
    calls.beforeAttributeUpdated = (name, node) => !(name === "open" || (name === "value" && typed(node)) || (name === "checked" && node.type === "checkbox") || (name === "hidden" && node.id === "bulk") || (name === "class" && node.matches("tr.picked, tr.at")));
  }

  // -- notices
  function notice(kind, text) {
    const box = make("div", "", `notice ${kind}`), close = make("button", "×");
    close.type = "button"; close.setAttribute("aria-label", "Close"); close.onclick = () => box.remove();
    box.append(make("span", text), close); $("#notices").append(box);
    setTimeout(() => box.remove(), kind === "bad" ? 20000 : 6000);
  }
  document.addEventListener("notice", (event) => {
    const { kind, text, there } = event.detail;
    if (there) { try { sessionStorage.setItem("notice", JSON.stringify({ kind, text })); } catch { /* shown nowhere */ } location.href = there; return; }
    notice(kind, text); if (kind === "good") { event.target.closest?.("form:not(.filters)")?.reset(); clearSelection(); } refreshSoon();
  });
  try { const kept = sessionStorage.getItem("notice"); if (kept) { sessionStorage.removeItem("notice"); const { kind, text } = JSON.parse(kept); notice(kind, text); } } catch { /* none */ }
  // A form that is refused comes back with the reason.
  document.addEventListener("htmx:beforeSwap", (event) => { if (event.detail.xhr.status === 422) { event.detail.shouldSwap = true; event.detail.isError = false; } });
  document.addEventListener("htmx:responseError", (event) => { const { status, responseText } = event.detail.xhr; if (status === 401) location.reload(); else if (event.target.id !== "live" && event.target.id !== "explain") notice("bad", status === 429 ? "Too many requests; wait a moment." : responseText.startsWith("<") || responseText.includes("<div") ? $(".empty", new DOMParser().parseFromString(responseText, "text/html"))?.textContent.trim() || `Refused (${status}).` : responseText.slice(0, 300)); });
  document.addEventListener("htmx:sendError", () => setState("gone", "The dashboard does not answer."));

  // -- confirmation of what destroys
  const confirmBox = $("#confirm");
  let agreed = null;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-confirm]");
    if (!button || agreed === button) { agreed = null; return; }
    event.preventDefault(); event.stopPropagation();
    if (button.form && !button.form.reportValidity()) return;
    $("#confirm-text").textContent = button.dataset.confirm; $("#confirm-yes").textContent = button.textContent.trim();
    confirmBox.returnValue = "no"; confirmBox.showModal();
    confirmBox.onclose = () => { if (confirmBox.returnValue === "yes") { agreed = button; button.click(); } };
  }, true);

  // -- news
  const state = $("#live-state");
  let source = null, timer = 0, last = 0, took = 100, begun = 0, lost = 0;
  function setState(kind, why) {
    state.className = `live-state ${kind === "live" ? "" : kind}`;
    $(".live-text").textContent = kind === "live" ? "Live" : kind === "stale" ? "Connecting" : "No news";
    $("#gone").hidden = kind !== "gone"; if (why) $("#gone-why").textContent = why;
  }
  function refreshSoon() {
    const live = $("#live"); if (!live || timer) return;
    timer = setTimeout(() => { timer = 0; last = performance.now(); begun = last; htmx.trigger("#live", "refresh"); }, Math.max(20, last + Math.max(250, 3 * took) - performance.now()));
  }
  document.addEventListener("htmx:afterSettle", (event) => { if (event.target.id === "live") { took = performance.now() - begun; tick(); selection(); } });
  function connect() {
    if (source || document.hidden) return;
    source = new EventSource(document.body.dataset.live);
    source.addEventListener("ended", () => location.reload());
    source.addEventListener("state", (event) => {
      const { error, now: theirs } = JSON.parse(event.data); ahead = theirs - Date.now() / 1000; lost = 0;
      if (error) setState("gone", error); else { if (state.classList.contains("gone") || state.classList.contains("stale")) refreshSoon(); setState("live"); }
    });
    source.addEventListener("change", (event) => {
      const { topics, jobs } = JSON.parse(event.data), wanted = ($("#live")?.dataset.topics || "").split(" ");
      if (topics.some((one) => wanted.includes(one)) || jobs.some((one) => wanted.includes(`job-${one}`))) refreshSoon();
      document.dispatchEvent(new CustomEvent("news", { detail: { topics, jobs } }));
    });
    source.onerror = () => {
      if (!lost) lost = performance.now();
      setState(performance.now() - lost > 4000 ? "gone" : "stale", "The dashboard does not answer.");
      if (source && source.readyState === EventSource.CLOSED) { source.close(); source = null; setTimeout(connect, 2000); }
    };
  }
  document.addEventListener("visibilitychange", () => { if (document.hidden) { source?.close(); source = null; } else { connect(); refreshSoon(); } });
  connect();

  // -- times that run
  function span(seconds) {
    const s = Math.max(0, Math.floor(seconds)), d = Math.floor(s / 86400), h = Math.floor(s % 86400 / 3600), m = Math.floor(s % 3600 / 60);
    return d ? (h ? `${d} d ${h} h` : `${d} d`) : h ? `${h} h ${String(m).padStart(2, "0")} min` : m ? `${m} min` : `${s} s`;
  }
  function tick() { for (const one of $$("time[data-since]")) { const text = span(now() - Number(one.dataset.since)); if (one.textContent !== text) one.textContent = text; } }
  setInterval(tick, 1000);

  // -- on a phone the pages are a strip: the one that is open is in view
  const here = $(".side [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - (here.parentElement.clientWidth - here.offsetWidth) / 2;

  // -- theme
  const themes = ["auto", "light", "dark"];
  function theme() {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const isDark = root.dataset.theme === "dark" || (root.dataset.theme === "auto" && dark);
    root.dataset.theme = isDark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* for this page alone */ }
    document.dispatchEvent(new Event("theme"));
  }
  if (!themes.includes(document.documentElement.dataset.theme)) document.documentElement.dataset.theme = "auto";
  $("#theme").onclick = theme;
  const shared = document.body.classList.contains("shared");

  // -- selection
  const ticks = () => $$("#selection tbody input[type=checkbox]");
  function selection() {
    const bulk = $("#bulk"); if (!bulk) return;
    const picked = ticks().filter((one) => one.checked);
    for (const one of ticks()) one.closest("tr").classList.toggle("picked", one.checked);
    bulk.hidden = !picked.length; $("#bulk-count").textContent = picked.length;
    const all = $("#all"); all.checked = picked.length > 0 && picked.length === ticks().length; all.indeterminate = picked.length > 0 && !all.checked;
  }
  function clearSelection() { for (const one of ticks()) one.checked = false; selection(); }
  document.addEventListener("change", (event) => {
    if (event.target.id === "all") for (const one of ticks()) one.checked = event.target.checked;
    if (event.target.closest?.("#selection")) selection();
  });

  // -- keyboard
  let chord = 0, row = -1;
  const places = { o: "/", q: "/queue", t: "/timeline", n: "/nodes", r: "/runs", p: "/partitions", u: "/usage", h: "/health" };
  function walk(step) {
    const rows = $$("tr[data-href]"); if (!rows.length) return;
    const at = rows.findIndex((one) => one.classList.contains("at")); rows[at]?.classList.remove("at");
    row = Math.min(rows.length - 1, Math.max(0, at + step)); rows[row].classList.add("at"); rows[row].scrollIntoView({ block: "nearest" });
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select") || $("dialog[open]")) return;
    const key = event.key;
    if (shared && key !== "t") return;
    if (chord && Date.now() - chord < 1200 && places[key]) { location.href = places[key]; return; }
    chord = 0;
    if (key === "g") chord = Date.now();
    else if (key === "/") { event.preventDefault(); ($("#filter-text") || $("#search")).focus(); }
    else if (key === "?") $("#keys").showModal();
    else if (key === "t") theme();
    else if (key === "s" && $(".top .primary")) location.href = "/submit";
    else if (key === "j") walk(1);
    else if (key === "k") walk(-1);
    else if (key === "x") { const box = $("tr.at input[type=checkbox]"); if (box) { box.checked = !box.checked; selection(); } }
    else if (key === "Enter" && !event.target.closest("a, button, summary, input, [tabindex='0']")) { const at = $("tr.at"); if (at) location.href = at.dataset.href; }
  });

  // -- the cluster as a drawing
  const canvas = $("#grid");
  if (canvas) {
    const pen = canvas.getContext("2d"), tip = $("#grid-tip"), legend = $("#grid-legend");
    let data = { nodes: [], jobs: {} }, places = [], busyFetch = false, again = false, tag = "";
    const colours = () => { const style = getComputedStyle(document.documentElement), at = (name) => style.getPropertyValue(name).trim(); return { own: [..."0123456789"].map((n) => at(`--c${n}`)), free: at("--free"), text: at("--text"), muted: at("--muted"), line: at("--line"), card: at("--card"), bad: at("--bad"), wait: at("--wait"), run: at("--run"), good: at("--good"), off: at("--off"), pause: at("--pause") }; };
    const mode = () => $("input[name=colour]:checked")?.value || "user";
    let users = new Map();
    function order() {
      const use = new Map();
      for (const [, , cells] of data.nodes) for (const id of cells) if (id) { const user = data.jobs[id]?.[2]; use.set(user, (use.get(user) || 0) + 1); }
      users = new Map([...use].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([user, count], place) => [user, [place % 10, count]]));
    }
    function paint(palette, id, node) {
      if (mode() === "state") return { down: palette.bad, drain: palette.wait, maint: palette.wait, power: palette.off }[node[1]] || (id ? palette.run : palette.free);
      if (mode() === "use") { if (node[4] < 0) return palette.free; return `color-mix(in srgb, ${palette.run} ${Math.max(4, node[4])}%, ${palette.free})`; }
      if (!id) return palette.free;
      return palette.own[mode() === "job" ? id % 10 : users.get(data.jobs[id]?.[2])?.[0] ?? 0];
    }
    function draw() {
      const count = data.nodes.length, width = canvas.parentElement.clientWidth; if (!width) return;
      const palette = colours(), most = Math.max(1, ...data.nodes.map((node) => node[2].length));
      // The largest cells with which every node is seen in some two thirds of the window.
      const room = Math.max(220, innerHeight * 0.52), perRow = Math.min(most, 8), rowsOf = (node) => Math.max(1, Math.ceil(node[2].length / perRow));
      const tallest = Math.max(1, ...data.nodes.map(rowsOf));
      let cell = 22, gap = 2, label = 15, boxWidth, boxHeight, perLine, lines;
      for (; cell >= 2; cell--) {
        gap = cell > 9 ? 2 : cell > 4 ? 1 : 0.5; label = cell >= 10 ? 15 : 0;
        boxWidth = perRow * (cell + gap) + (cell > 5 ? 12 : 3); boxHeight = tallest * (cell + gap) + label + (cell > 5 ? 12 : 3);
        perLine = Math.max(1, Math.floor(width / boxWidth)); lines = Math.ceil(count / perLine);
        if (lines * boxHeight <= room) break;
      }
      boxWidth = Math.min(width / perLine, boxWidth * 1.5);
      const height = Math.max(24, lines * boxHeight), scale = devicePixelRatio || 1;
      canvas.width = width * scale; canvas.height = height * scale; canvas.style.height = `${height}px`;
      pen.setTransform(scale, 0, 0, scale, 0, 0); pen.font = "11px system-ui, sans-serif"; places = [];
      data.nodes.forEach((node, place) => {
        const x = (place % perLine) * boxWidth, y = Math.floor(place / perLine) * boxHeight, closed = { down: palette.bad, drain: palette.wait, maint: palette.wait }[node[1]];
        if (label) { pen.fillStyle = closed || palette.muted; pen.fillText((closed ? "▲ " : "") + node[0], x + 1, y + 11, boxWidth - 8); }
        node[2].forEach((id, number) => {
          const cx = x + (number % perRow) * (cell + gap), cy = y + label + Math.floor(number / perRow) * (cell + gap);
          pen.fillStyle = paint(palette, id, node);
          if (cell > 7) { pen.beginPath(); pen.roundRect(cx, cy, cell, cell, 3); pen.fill(); } else pen.fillRect(cx, cy, cell, cell);
        });
        if (closed) { pen.strokeStyle = closed; pen.lineWidth = cell > 5 ? 1.5 : 1; const w = Math.min(perRow, node[2].length || 1) * (cell + gap) - gap, h = rowsOf(node) * (cell + gap) - gap; pen.beginPath(); pen.moveTo(x, y + label + h); pen.lineTo(x + w, y + label); pen.stroke(); }
        places.push([x, y, boxWidth, boxHeight, node, cell, gap, label, perRow]);
      });
      if (data.version !== undefined) canvas.dataset.drawn = data.version;
      legend.replaceChildren(...legendOf(palette));
    }
    function legendOf(palette) {
      const item = (colour, text, there) => { const made = make("span", "", "item"), swatch = make("span", "", "swatch"); swatch.style.background = colour; made.append(swatch); if (there) { const link = make("a", text); link.href = there; made.append(link); } else made.append(text); return made; };
      if (mode() === "state") return [item(palette.run, "in use"), item(palette.free, "free"), item(palette.wait, "draining, maintenance"), item(palette.bad, "down"), item(palette.off, "powered down")];
      if (mode() === "use") return [item(palette.free, "idle"), item(`color-mix(in srgb, ${palette.run} 50%, ${palette.free})`, "half busy"), item(palette.run, "busy, by GPU use or CPU load")];
      const found = mode() === "job" ? [] : [...users].slice(0, 10).map(([user, [place, count]]) => item(palette.own[place], `${user} ${count}`, `/queue?user=${encodeURIComponent(user)}`));
      if (users.size > 10 && mode() !== "job") found.push(make("span", `and ${users.size - 10} more users`));
      return [...found, item(palette.free, "free")];
    }
    async function load() {
      if (busyFetch) { again = true; return; }
      busyFetch = true; again = false;
      try {
        const answer = await fetch(canvas.dataset.source, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
        if (answer.status === 200) { tag = answer.headers.get("etag") || ""; data = await answer.json(); order(); draw(); }
      } catch { /* the banner says it */ }
      busyFetch = false; if (again) setTimeout(load, 150);
    }
    function at(event) {
      const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
      for (const [left, top, width, height, node, cell, gap, label, perRow] of places) if (x >= left && x < left + width && y >= top && y < top + height) {
        const column = Math.floor((x - left) / (cell + gap)), line = Math.floor((y - top - label) / (cell + gap)), number = line * perRow + column;
        const inside = column >= 0 && column < perRow && line >= 0 && number < node[2].length;
        return { node, number: inside ? number : -1, id: inside ? node[2][number] : 0 };
      }
      return null;
    }
    canvas.addEventListener("mousemove", (event) => {
      const found = at(event); tip.hidden = !found; if (!found) return;
      const job = data.jobs[found.id], lines = [found.node[0] + (found.node[1] === "idle" || found.node[1] === "mixed" || found.node[1] === "alloc" ? "" : `, ${found.node[1]}`) + (found.node[4] >= 0 ? `, ${found.node[4]} % busy` : "")];
      if (found.number >= 0) lines.push(`${found.node[3] ? `GPU ${found.number}` : "CPUs"}: ${job ? `job ${job[0]} ${job[1]}\n${job[2]}, ${job[4] ? `${job[4]} GPUs` : `${job[5]} CPUs`}` : "free"}`);
      tip.textContent = lines.join("\n"); tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 240)}px`; tip.style.top = `${event.clientY + 16}px`;
    });
    canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
    canvas.addEventListener("click", (event) => { const found = at(event); if (found) location.href = found.id ? `/jobs/${found.id}` : `/nodes/${encodeURIComponent(found.node[0])}`; });
    canvas.addEventListener("keydown", (event) => { if (event.key === "Enter") location.href = "/nodes"; });
    document.addEventListener("change", (event) => { if (event.target.name === "colour") { const url = new URL(location.href); url.searchParams.set("colour", event.target.value); history.replaceState(history.state, "", url); draw(); } });
    document.addEventListener("news", (event) => { if (event.detail.topics.some((one) => one === "jobs" || one === "nodes")) load(); });
    document.addEventListener("theme", draw); matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    new ResizeObserver(draw).observe(canvas.parentElement);
    load();
  }

  // -- the output of a job
  const log = $("#log");
  if (log) {
    const text = $("#log-text"), about = $("#log-about"), follow = $("#log-follow"), find = $("#log-find"), foundBox = $("#log-found");
    const CHARS = 4000, LINES = 6000;
    let begin = 0, end = 0, size = 0, rest = null, asking = false;
    const file = () => $("input[name=log-file]:checked")?.value || log.dataset.file || "output";
    const place = (query) => `${log.dataset.source}?${new URLSearchParams({ file: file(), ...query })}`;
    // Colours and weights of ANSI; every other sequence is left out, and what turns the direction of text is shown as a sign.
    const sequences = /\x1b\[([0-9;]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\^_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
    const turning = /[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/g;
    let style = [];
    function styled(codes) {
      for (const code of (codes || "0").split(";").map(Number)) {
        if (code === 0) style = []; else if (code === 1) style.push("a-b"); else if (code === 2) style.push("a-d"); else if (code === 3) style.push("a-i"); else if (code === 4) style.push("a-u");
        else if (code === 22) style = style.filter((one) => one !== "a-b" && one !== "a-d"); else if (code === 39) style = style.filter((one) => one[0] !== "f");
        else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) style = [...style.filter((one) => one[0] !== "f"), `f${code % 10}`];
        if (code === 38 || code === 48) break;
      }
    }
    function fill(line, raw, whole = false) {
      let shown = raw.includes("\r") ? raw.replace(/\r+$/, "").split("\r").pop() : raw; // a progress bar: what is left of it
      const cut = !whole && shown.length > CHARS; if (cut) shown = shown.slice(0, CHARS);
      shown = shown.replace(turning, "\ufffd");
      let at = 0;
      const put = (piece) => { if (!piece) return; if (style.length) line.append(make("span", piece, style.join(" "))); else line.append(piece); };
      for (const match of shown.matchAll(sequences)) { put(shown.slice(at, match.index)); if (match[0].endsWith("m") && match[0][1] === "[") styled(match[1]); at = match.index + match[0].length; }
      put(shown.slice(at));
      if (cut) { const more = make("button", `… ${(raw.length - CHARS).toLocaleString()} more characters`, "cut"); more.type = "button"; more.onclick = () => { line.replaceChildren(); fill(line, raw, raw.length < 400000); }; line.append(more); }
    }
    function lineOf(raw, at) { const line = make("div", "", "l"); line.dataset.at = at; fill(line, raw); const wanted = find.value.trim().toLowerCase(); if (wanted && raw.toLowerCase().includes(wanted)) line.classList.add("hit"); return line; }
    const bytes = new TextEncoder();
    function lines(data, from) {
      let at = from; const made = [];
      const pieces = data.split("\n"), open = pieces.pop();
      for (const raw of pieces) { made.push(lineOf(raw, at)); at += bytes.encode(raw).length + 1; }
      return [made, open, at];
    }
    function units(count) { for (const unit of ["B", "KiB", "MiB", "GiB"]) { if (count < 1024 || unit === "GiB") return `${count < 10 && unit !== "B" ? count.toFixed(1) : Math.round(count)} ${unit}`; count /= 1024; } }
    function tell(problem) {
      about.replaceChildren();
      if (problem) { if (!text.childElementCount || $(".loading", text)) text.replaceChildren(make("p", problem, "faint")); return; }
      about.append(`${units(size)}${begin ? `, shown from ${units(begin)} on ` : ""}`);
      if (begin) { const more = make("button", "Show what is before", "link"); more.type = "button"; more.onclick = earlier; about.append(more); }
    }
    async function ask(query) { const answer = await fetch(place(query), { headers: { Accept: "application/json" } }); if (answer.status === 401 || (shared && answer.status === 404)) location.reload(); if (!answer.ok) throw new Error(await answer.text()); return answer.json(); }
    async function open(query = {}) {
      style = [];
      const data = await ask(query);
      ({ begin, end, size } = data); rest = null; text.replaceChildren();
      if (data.problem) { tell(data.problem); return; }
      add(data.text, begin); tell();
      if (!query.before) text.scrollTop = text.scrollHeight;
    }
    function add(data, from) {
      if (rest) { data = rest.raw + data; from = rest.at; rest.line.remove(); }
      const [made, open, at] = lines(data, from);
      text.append(...made); rest = null;
      if (open) { rest = { raw: open.slice(-200000), at, line: lineOf(open, at) }; text.append(rest.line); }
      while (text.childElementCount > LINES) { text.firstElementChild.remove(); begin = Number(text.firstElementChild.dataset.at); }
      if (!text.childElementCount) text.append(make("p", "Nothing is written yet.", "faint loading"));
    }
    async function more() {
      if (asking || document.hidden || !follow.checked) return;
      asking = true;
      try {
        const data = await ask({ from: end });
        if (data.problem) tell(data.problem);
        else if (data.again) await open();
        else if (data.end > end || size !== data.size) {
          const isLow = text.scrollHeight - text.scrollTop - text.clientHeight < 60;
          $(".loading", text)?.remove();
          if (data.begin > end) { rest = null; text.append(make("p", "…", "faint")); }
          add(data.text, data.begin > end ? data.begin : end); end = data.end; size = data.size; tell();
          if (isLow) text.scrollTop = text.scrollHeight;
        }
      } catch { /* the banner says it */ }
      asking = false;
    }
    async function earlier() {
      const data = await ask({ before: begin }), [made, tail] = lines(data.text, data.begin), height = text.scrollHeight;
      if (tail) made.push(lineOf(tail, data.begin));
      text.prepend(...made); begin = data.begin; tell(); text.scrollTop += text.scrollHeight - height; follow.checked = false;
    }
    async function search() {
      const wanted = find.value.trim();
      for (const line of $$(".l", text)) line.classList.toggle("hit", Boolean(wanted) && line.textContent.toLowerCase().includes(wanted.toLowerCase()));
      foundBox.hidden = !wanted; if (!wanted) return;
      const answer = await fetch(`${log.dataset.source}/find?${new URLSearchParams({ file: file(), q: wanted })}`); if (!answer.ok) return;
      const { lines: hits, more: isMore, problem } = await answer.json();
      if (wanted !== find.value.trim()) return;
      foundBox.replaceChildren(make("p", problem || `${hits.length}${isMore ? " or more" : ""} line${hits.length === 1 && !isMore ? "" : "s"}${isMore && !hits.length ? " in the last 64 MiB" : ""}`, "faint"));
      for (const [at, shown] of hits.reverse()) {
        const button = make("button", shown.replace(sequences, "").replace(turning, "\ufffd")); button.type = "button";
        button.onclick = async () => {
          let line = $$(".l", text).find((one) => Number(one.dataset.at) === at);
          if (!line) { follow.checked = false; await open({ before: at + 40000 }); line = $$(".l", text).find((one) => Number(one.dataset.at) >= at); }
          line?.classList.add("hit"); line?.scrollIntoView({ block: "center" });
        };
        foundBox.append(button);
      }
    }
    let typing = 0;
    find.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(search, 250); });
    $("#log-wrap").onchange = (event) => text.classList.toggle("wrap", event.target.checked);
    follow.onchange = () => { if (follow.checked) open(); };
    for (const one of $$("input[name=log-file]")) one.onchange = () => open();
    open().catch((error) => tell(error.message));
    setInterval(more, log.dataset.over === "yes" ? 10000 : 700);
  }

  // -- charts
  const charts = [];
  function chart(box, figure, range) {
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const holder = make("figure"); const wide = (figure.unit || "").length > 2, unit = wide ? "" : figure.unit || ""; holder.append(make("figcaption", wide ? `${figure.title} (${figure.unit.trim()})` : figure.title)); box.append(holder);
    const short = (value) => value == null ? "" : Math.abs(value) >= 1e9 ? `${+(value / 1e9).toPrecision(3)}G` : Math.abs(value) >= 1e6 ? `${+(value / 1e6).toPrecision(3)}M` : Math.abs(value) >= 1e4 ? `${+(value / 1e3).toPrecision(3)}k` : String(+Number(value).toPrecision(4));
    const clock = (at, wide) => { const when = new Date(at * 1000), time = when.toTimeString(); return wide > 86400 ? `${String(when.getMonth() + 1).padStart(2, "0")}-${String(when.getDate()).padStart(2, "0")} ${time.slice(0, 5)}` : time.slice(0, wide > 1800 ? 5 : 8); };
    const made = new uPlot({
      width: holder.clientWidth || 420, height: 210, cursor: { sync: { key: figure.x } }, scales: { x: { time: figure.x === "time", ...(figure.x === "time" && range ? { range: () => range } : {}) }, ...(figure.zero ? { y: { range: (_, least, most) => [0, Math.max(most * 1.08, 1e-9)] } } : {}) },
      axes: [{ ...axis, ...(figure.x === "time" ? { values: (_, all) => all.map((at) => clock(at, all.at(-1) - all[0])), space: 80 } : {}) }, { ...axis, size: 72, values: (_, all) => all.map((one) => short(one) + (one === null ? "" : unit)) }],
      series: [figure.x === "time" ? { label: "Time", value: (_, at) => at == null ? "" : new Date(at * 1000).toTimeString().slice(0, 8) } : { label: "Step" }, ...figure.names.map((name, place) => ({ label: name, stroke: colour(`--c${place % 10}`), width: 1.8, spanGaps: true, points: { show: figure.data[0].length < 40 }, value: (_, one) => one == null ? "" : short(one) + (figure.unit || "") }))],
    }, figure.data, holder);
    charts.push([made, holder]);
  }
  async function drawCharts(box) {
    const chosen = box.dataset.choice && $(`input[name=${box.dataset.choice}]:checked`)?.value;
    const answer = await fetch(box.dataset.charts + (chosen ? `?${new URLSearchParams({ [box.dataset.choice]: chosen })}` : "")); if (!answer.ok) return;
    const { figures, problem } = await answer.json();
    for (const [made] of charts.splice(0)) made.destroy();
    box.replaceChildren();
    if (!figures.length) box.append(make("p", problem ? `Nothing is recorded: ${problem}` : "Nothing is recorded yet.", "faint"));
    // All that has times has the same axis, so that what happened at a time is below one another.
    const timed = figures.filter((one) => one.x === "time" && one.data[0].length), ends = timed.flatMap((one) => [one.data[0][0], one.data[0].at(-1)]);
    const range = ends.length && Math.max(...ends) > Math.min(...ends) ? [Math.min(...ends), Math.max(...ends)] : null;
    for (const figure of figures) chart(box, figure, range);
    if (!figures.length && !(box.dataset.tries > 3)) { box.dataset.tries = Number(box.dataset.tries || 0) + 1; setTimeout(() => drawCharts(box), 1500); }
  }
  for (const box of $$("[data-charts]")) {
    drawCharts(box); document.addEventListener("theme", () => drawCharts(box));
    if (box.dataset.choice) for (const one of $$(`input[name=${box.dataset.choice}]`)) one.onchange = () => drawCharts(box);
    if (log?.dataset.over !== "yes") setInterval(() => { if (!document.hidden) drawCharts(box); }, 10000);
  }
  new ResizeObserver(() => { for (const [made, holder] of charts) made.setSize({ width: holder.clientWidth, height: 210 }); }).observe(document.body);
})();
