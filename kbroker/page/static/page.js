// What makes the page more than its HTML: it keeps itself fresh, filters while one types, and listens to keys.
"use strict";

const main = document.getElementById("main");

// --- keeping fresh: the view is asked for again while it is looked at, unless somebody is at work in it ---
function isRestingFilter(field) {
  return field.matches("form[data-live] [data-slash]") && field.value === field.defaultValue;
}

function isBusy() {
  const active = document.activeElement;
  const typing = active && main.contains(active) && /^(INPUT|TEXTAREA|SELECT)$/.test(active.tagName) && !isRestingFilter(active);
  return document.hidden || typing || main.querySelector("details[open]") || String(getSelection()) !== "";
}

const MOST_WAITED_MS = 30_000;
let asking = false;
let freshAt = new Date();

async function refresh() {
  if (asking || isBusy()) return;
  asking = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(MOST_WAITED_MS) });
    const text = await answer.text();
    if (answer.redirected) return tellStale("log in again");
    if (!answer.ok) return tellStale(`the page answers ${answer.status}`);
    if (isBusy()) return;
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
    if (fresh) show(fresh);
  } catch {
    tellStale("no connection to the page");
  } finally {
    asking = false;
  }
}

function show(fresh) {
  const places = [...main.querySelectorAll(".scroll, .map-scroll")].map((each) => each.scrollLeft);
  const field = main.contains(document.activeElement) && isRestingFilter(document.activeElement) ? document.activeElement : null;
  const selected = field && [field.selectionStart, field.selectionEnd];
  main.replaceChildren(...fresh.childNodes);
  main.querySelectorAll(".scroll, .map-scroll").forEach((each, index) => { each.scrollLeft = places[index] || 0; });
  const again = field && main.querySelector("form[data-live] [data-slash]");
  if (again) {
    again.focus({ preventScroll: true });
    again.setSelectionRange(...selected);
  }
  freshAt = new Date();
}

function tellStale(why) {
  let line = main.querySelector("[data-stale]");
  if (!line) {
    line = document.createElement("p");
    line.className = "notice";
    line.dataset.stale = "";
    line.setAttribute("role", "status");
    main.prepend(line);
  }
  line.textContent = `Not fresh since ${freshAt.toISOString().slice(11, 19)} UTC: ${why}`;
}

const seconds = Number(main.dataset.refresh || 0);
if (seconds) setInterval(refresh, seconds * 1000);

// --- filters of what is on the page, and of lists that the server filters ---
function applyFilters() {
  const texts = [...main.querySelectorAll("[data-filter]")];
  for (const input of texts) {
    const wanted = input.value.trim().toLowerCase();
    for (const row of main.querySelectorAll(input.dataset.filter)) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted) && ![...row.querySelectorAll("input")].some((each) => each.type !== "hidden" && each.value.toLowerCase().includes(wanted));
    }
  }
  for (const box of main.querySelectorAll("[data-only]")) {
    if (box.checked) for (const row of main.querySelectorAll(box.dataset.only)) row.hidden = true;
  }
}

let waiting = 0;
document.addEventListener("input", (event) => {
  if (event.target.matches("[data-filter], [data-only]")) applyFilters();
  const form = event.target.closest("form[data-live]");
  if (form) {
    clearTimeout(waiting);
    waiting = setTimeout(() => form.requestSubmit(), 350);
  }
});
const live = document.querySelector("form[data-live] [data-slash]");
if (live && live.value) {
  live.focus();
  live.setSelectionRange(live.value.length, live.value.length);
}

// --- what is asked before something is lost ---
document.addEventListener("submit", (event) => {
  const question = event.submitter && event.submitter.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

// --- a phone's navigation shows where one is ---
const here = document.querySelector(".top nav [aria-current]");
if (here) here.scrollIntoView({ block: "nearest", inline: "nearest" });

// --- keys: / to the filter, g and a letter to a view ---
const VIEWS = { o: "/", t: "/topics", g: "/groups", x: "/transactions", a: "/access", m: "/map" };
let afterG = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  if (event.key === "/") {
    const field = main.querySelector("[data-slash], input[type=search]");
    if (field) { event.preventDefault(); field.focus(); field.select(); }
  } else if (Date.now() - afterG < 1200 && VIEWS[event.key]) {
    location.href = VIEWS[event.key];
  } else if (event.key === "g") {
    afterG = Date.now();
  }
});

// --- copying: a page that is not on loopback has no clipboard without TLS; then a selection does it ---
async function copy(text, button) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
  } else {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 1200);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  const source = button && document.querySelector(button.dataset.copy);
  if (source) copy(source.textContent, button);
});

// --- messages: a search is a stream of events, whose rows the server has written (and escaped) ---
const table = main.querySelector("table[data-stream]");
const MOST_ROWS = 2000;

function startSearch() {
  const body = table.tBodies[0];
  const status = main.querySelector("[data-status]");
  const progress = main.querySelector("[data-progress]");
  const stop = main.querySelector("[data-stop]");
  const isLive = "live" in table.dataset;
  const source = new EventSource(table.dataset.stream);
  const number = (value) => value.toLocaleString("en").replaceAll(",", "\u202f");
  let last = { found: 0, scanned: 0 };

  function finish(text) {
    source.close();
    stop.hidden = true;
    progress.hidden = true;
    status.textContent = text;
    table.dataset.state = "done";
  }
  const without = () => (last.without ? ` (not in ${last.without})` : "");
  const told = () => `${number(last.found)} found in ${number(last.scanned)} records${without()}`;

  stop.hidden = false;
  stop.onclick = () => finish(`Stopped: ${told()}`);
  status.textContent = isLive ? "Waiting for what comes…" : "Searching…";
  source.addEventListener("rows", (event) => {
    last = JSON.parse(event.data);
    if (last.html) {
      const template = document.createElement("template");
      template.innerHTML = last.html;
      if (isLive) {
        const pairs = [...template.content.querySelectorAll("tr.record")].map((row) => [row, row.nextElementSibling]);
        for (const pair of pairs) body.prepend(...pair);
      } else {
        body.append(template.content);
      }
      while (body.rows.length > 2 * MOST_ROWS) (isLive ? body.lastElementChild : body.firstElementChild).remove();
    }
    if (last.total) {
      progress.hidden = false;
      progress.max = last.total;
      progress.value = last.scanned;
    }
    status.textContent = isLive ? `Live: ${told()}` : `${told()}${last.total ? ` of ${number(last.total)}` : ""}…`;
  });
  source.addEventListener("end", (event) => {
    const end = JSON.parse(event.data);
    finish(end.found >= end.limit ? `${told()}; there may be more` : `${told()}; that is all`);
  });
  source.addEventListener("problem", (event) => finish(JSON.parse(event.data).text));
  source.onerror = () => {
    const isRefused = source.readyState === EventSource.CLOSED && last.scanned === 0;
    finish(isRefused ? "The search was refused" : `The connection has ended: ${told()}`);
    if (isRefused) tellRefusal(status);
  };
}

// An EventSource does not say why it was refused; the page does, to who asks again.
async function tellRefusal(status) {
  const stop = new AbortController();
  try {
    const answer = await fetch(table.dataset.stream, { signal: stop.signal });
    if (answer.ok) return;
    const why = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".problem code");
    status.textContent = why ? why.textContent : `The search was refused (${answer.status})`;
  } catch {
    status.textContent = "No connection to the page";
  } finally {
    stop.abort();
  }
}

if (table) {
  if (table.dataset.stream) startSearch();
  const from = main.querySelector("[data-from]");
  const at = main.querySelector("[data-at]");
  const showAt = () => { at.hidden = from.value !== "offset" && from.value !== "time"; };
  from.addEventListener("change", () => { showAt(); if (!at.hidden) at.querySelector("input").focus(); });
  showAt();
  table.addEventListener("click", (event) => {
    const row = event.target.closest("tr.record");
    if (!row || (String(getSelection()) !== "" && event.target.tagName !== "BUTTON")) return;
    const detail = row.nextElementSibling;
    detail.hidden = !detail.hidden;
    row.querySelector(".open").setAttribute("aria-expanded", String(!detail.hidden));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy-next], [data-copy-rows]");
    if (!button) return;
    const rows = [...table.tBodies[0].querySelectorAll("tr.record")];
    const text = "copyNext" in button.dataset
      ? button.parentElement.nextElementSibling.textContent
      : rows.map((row) => [...row.cells].map((cell) => cell.textContent.trim()).join("\t")).join("\n");
    copy(text, button);
  });
}
