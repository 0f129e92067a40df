// What makes the page more than its HTML: it keeps itself fresh, filters while one types, and listens to keys.
"use strict";

const main = document.getElementById("main");

// --- keeping fresh: the view is asked for again while it is looked at, unless somebody is at work in it ---
function isBusy() {
  const active = document.activeElement;
  const typing = active && main.contains(active) && /^(INPUT|TEXTAREA|SELECT)$/.test(active.tagName);
  return document.hidden || typing || main.querySelector("details[open]") || String(getSelection()) !== "";
}

async function refresh() {
  if (isBusy()) return;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok || answer.redirected || isBusy()) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    if (!fresh) return;
    const places = [...main.querySelectorAll(".scroll, .map-scroll")].map((each) => each.scrollLeft);
    main.replaceChildren(...fresh.childNodes);
    main.querySelectorAll(".scroll, .map-scroll").forEach((each, index) => { each.scrollLeft = places[index] || 0; });
  } catch { /* the next round asks again */ }
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

// --- copying ---
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.querySelector(button.dataset.copy);
  if (!source) return;
  await navigator.clipboard.writeText(source.textContent);
  const text = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = text; }, 1200);
});
